// Agent words: each kind arrives as it was said, and what is no word is refused.
#include "mpmd/agent_words.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace mw = manyworlds;
namespace detail = manyworlds::detail;
using detail::agent_wire::word_kind;

namespace {

detail::instance_report report_of(detail::instance_life life) {
  detail::instance_report report;
  report.instance = {"decode", 3};
  report.incarnation = 7;
  report.life = life;
  report.pid = 4711;
  report.start_time = 99;
  report.progress = 12;
  if (life == detail::instance_life::ended)
    report.exit = {mw::exit_kind::signaled, 0, 9, "was killed by SIGKILL"};
  return report;
}

/// Returns a word of that kind with all that belongs to it.
detail::agent_word full_word(word_kind kind) {
  detail::agent_word word;
  word.kind = kind;
  const bool is_of_agent = kind == word_kind::hello;
  if (is_of_agent || kind == word_kind::welcome) word.term = 5;
  if (is_of_agent) {
    word.node.name = "n1";
    word.node.cpus = {{0, {0, 1}}};
    word.node.memory = 1 << 20;
    word.agent = "0123456789abcdef";
    word.has = {report_of(detail::instance_life::ready),
                report_of(detail::instance_life::ended)};
  }
  if (kind == word_kind::report) word.has = {report_of(detail::instance_life::ended)};
  if (kind == word_kind::welcome || kind == word_kind::place) word.graph = "{}";
  if (kind == word_kind::welcome) word.absence = std::chrono::seconds(90);
  const bool is_about_instance = !is_of_agent && kind != word_kind::report &&
                                 kind != word_kind::welcome && kind != word_kind::over &&
                                 kind != word_kind::refusal;
  if (is_about_instance) {
    word.instance = {"decode", 1};
    word.incarnation = 4;
  }
  if (kind == word_kind::ensure || kind == word_kind::place) {
    word.spec.command = {"./a", "-b"};
    word.spec.folder = "/tmp";
    word.spec.variables = {{"X", "1"}};
    word.spec.cpus = {1, 2};
    word.spec.gpus = {"GPU-0"};
    word.spec.has_gpus_of_its_own = true;
    word.spec.waits_until_ready = true;
    word.spec.drain = std::chrono::seconds(3);
    word.spec.grace = std::chrono::milliseconds(7);
    word.spec.facts = {{"k", std::string("\0\xff", 2)}};
  }
  const bool is_fact = kind == word_kind::fact || kind == word_kind::fact_recorded;
  const bool is_loss = kind == word_kind::lost;
  if (kind == word_kind::progress || is_fact || is_loss) word.steps = 8;
  if (is_fact) word.key = "k";
  if (is_fact || kind == word_kind::join) word.value = std::string("\0\xff", 2);
  if (kind == word_kind::refusal || is_loss) word.value = "another agent serves it";
  if (kind == word_kind::ask || kind == word_kind::answer || is_loss)
    word.about = {"a", 2};
  if (kind == word_kind::answer) word.is_handled = true;
  if (kind == word_kind::end) word.drains = true;
  return word;
}

}  // namespace

TEST_CASE("graph: a word of each kind arrives as it was said") {
  for (auto number = static_cast<std::uint32_t>(word_kind::hello);
       number <= static_cast<std::uint32_t>(word_kind::refusal); ++number) {
    CAPTURE(number);
    const detail::agent_word said = full_word(static_cast<word_kind>(number));
    const detail::agent_word heard =
        detail::agent_word_from(said.kind, detail::text_of(said));
    CHECK(heard == said);
  }
}

TEST_CASE("graph B75: what is no word is refused by a sentence") {
  const auto refuses = [](word_kind kind, const std::string& text) {
    CAPTURE(text);
    CHECK_THROWS_AS(static_cast<void>(detail::agent_word_from(kind, text)),
                    std::invalid_argument);
  };
  refuses(static_cast<word_kind>(0), "{}");
  refuses(static_cast<word_kind>(1000), "{}");
  for (const char* const text : {"", "{", "[]", "null", "7", "{\"index\": -1}"})
    for (auto number = static_cast<std::uint32_t>(word_kind::hello);
         number <= static_cast<std::uint32_t>(word_kind::refusal); ++number)
      if (static_cast<word_kind>(number) != word_kind::over)
        refuses(static_cast<word_kind>(number), text);

  detail::agent_word hello = full_word(word_kind::hello);
  hello.agent = std::string(65, 'a');
  refuses(word_kind::hello, detail::text_of(hello));
  hello.agent.clear();
  refuses(word_kind::hello, detail::text_of(hello));

  detail::agent_word report = full_word(word_kind::report);
  report.has[0].exit.text = std::string(4097, 'x');
  refuses(word_kind::report, detail::text_of(report));
  report.has.clear();
  refuses(word_kind::report, detail::text_of(report));

  for (const char* const number : {"1e300", "1.5", "-1", "4294967297"}) {
    CAPTURE(number);
    std::string text = detail::text_of(full_word(word_kind::ready));
    const std::size_t at = text.find("\"index\":1");
    REQUIRE(at != std::string::npos);
    text.replace(at, 9, "\"index\":" + std::string(number));
    refuses(word_kind::ready, text);
  }

  detail::agent_word ensure = full_word(word_kind::ensure);
  ensure.spec.grace = -std::chrono::seconds(1);
  refuses(word_kind::ensure, detail::text_of(ensure));
}
