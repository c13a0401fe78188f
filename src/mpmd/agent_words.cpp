#include "mpmd/agent_words.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>

#include "exception_text.hpp"
#include "mpmd/byte_text.hpp"

namespace manyworlds::inline v0::detail {

using agent_wire::word_kind;
using nlohmann::json;

// --- reports --------------------------------------------------------------------------

static json json_of(const instance_report& report) {
  json all{{"role", report.instance.role},
           {"index", report.instance.index},
           {"incarnation", report.incarnation},
           {"life", name_of(report.life)},
           {"pid", report.pid},
           {"start_time", report.start_time},
           {"progress", report.progress}};
  if (report.life == instance_life::ended) {
    all["exit"] = {{"kind", name_of(report.exit.kind)},
                   {"code", report.exit.code},
                   {"signal", report.exit.signal},
                   {"text", report.exit.text}};
  }
  return all;
}

static std::uint32_t index_from(const json& all) {
  const auto index = all.at("index").get<std::uint64_t>();
  if (index > UINT32_MAX) throw std::invalid_argument("an index that is none");
  return static_cast<std::uint32_t>(index);
}

static instance_report report_from(const json& all) {
  instance_report report;
  all.at("role").get_to(report.instance.role);
  report.instance.index = index_from(all);
  all.at("incarnation").get_to(report.incarnation);
  report.life = life_named(all.at("life").get<std::string>()).value();
  all.at("pid").get_to(report.pid);
  all.at("start_time").get_to(report.start_time);
  all.at("progress").get_to(report.progress);
  if (report.life == instance_life::ended) {
    const json& exit = all.at("exit");
    report.exit.kind = exit_kind_named(exit.at("kind").get<std::string>()).value();
    exit.at("code").get_to(report.exit.code);
    exit.at("signal").get_to(report.exit.signal);
    exit.at("text").get_to(report.exit.text);
    if (report.exit.text.size() > agent_wire::longest_exit_text)
      throw std::invalid_argument("the text of an exit is too long");
  }
  return report;
}

// --- starts ---------------------------------------------------------------------------

static json json_of(const start_spec& spec) {
  json facts = json::object();
  for (const auto& [key, value] : spec.facts) facts[key] = hex_of(value);
  return {{"command", spec.command},
          {"folder", spec.folder},
          {"variables", spec.variables},
          {"cpus", spec.cpus},
          {"gpus", spec.gpus},
          {"has_gpus_of_its_own", spec.has_gpus_of_its_own},
          {"waits_until_ready", spec.waits_until_ready},
          {"drain", spec.drain.count()},
          {"grace", spec.grace.count()},
          {"facts", std::move(facts)}};
}

static start_spec spec_from(const json& all) {
  start_spec spec;
  all.at("command").get_to(spec.command);
  all.at("folder").get_to(spec.folder);
  all.at("variables").get_to(spec.variables);
  all.at("cpus").get_to(spec.cpus);
  all.at("gpus").get_to(spec.gpus);
  all.at("has_gpus_of_its_own").get_to(spec.has_gpus_of_its_own);
  all.at("waits_until_ready").get_to(spec.waits_until_ready);
  spec.drain = duration(all.at("drain").get<std::int64_t>());
  spec.grace = duration(all.at("grace").get<std::int64_t>());
  for (const auto& [key, value] : all.at("facts").items())
    spec.facts.emplace(key, bytes_of_hex(value.get<std::string>()));
  if (spec.drain < duration::zero() || spec.grace < duration::zero())
    throw std::invalid_argument("a start with a negative time");
  return spec;
}

// --- words ----------------------------------------------------------------------------

static bool is_about_instance(word_kind kind) noexcept {
  return kind != word_kind::hello && kind != word_kind::report &&
         kind != word_kind::welcome && kind != word_kind::over &&
         kind != word_kind::refusal;
}

static bool is_first(word_kind kind) noexcept {
  return kind == word_kind::hello || kind == word_kind::join;
}

static bool is_about_fact(word_kind kind) noexcept {
  return kind == word_kind::fact || kind == word_kind::fact_recorded;
}

static bool has_steps(word_kind kind) noexcept {
  return kind == word_kind::progress || kind == word_kind::lost || is_about_fact(kind);
}

static bool has_reason(word_kind kind) noexcept {
  return kind == word_kind::refusal || kind == word_kind::lost;
}

static bool is_about_two(word_kind kind) noexcept {
  return kind == word_kind::ask || kind == word_kind::answer || kind == word_kind::lost;
}

std::string text_of(const agent_word& word) {
  json all = json::object();
  if (word.kind == word_kind::hello) {
    all["node"] = word.node.to_json();
    all["agent"] = word.agent;
  }
  if (word.kind == word_kind::hello || word.kind == word_kind::welcome)
    all["term"] = word.term;
  if (word.kind == word_kind::welcome || word.kind == word_kind::place)
    all["graph"] = word.graph;
  if (word.kind == word_kind::welcome && word.absence)
    all["absence"] = word.absence->count();
  if (has_steps(word.kind)) all["steps"] = word.steps;
  if (word.kind == word_kind::hello || word.kind == word_kind::report) {
    json& has = all["has"] = json::array();
    for (const instance_report& report : word.has) has.push_back(json_of(report));
  }
  if (is_about_instance(word.kind)) {
    all["role"] = word.instance.role;
    all["index"] = word.instance.index;
    all["incarnation"] = word.incarnation;
  }
  if (is_about_two(word.kind))
    all["about"] = {{"role", word.about.role}, {"index", word.about.index}};
  if (word.kind == word_kind::end) all["drains"] = word.drains;
  if (word.kind == word_kind::answer) all["is_handled"] = word.is_handled;
  if (word.kind == word_kind::ensure || word.kind == word_kind::place)
    all["spec"] = json_of(word.spec);
  if (is_about_fact(word.kind)) all["key"] = word.key;
  if (is_about_fact(word.kind) || word.kind == word_kind::join)
    all["value"] = hex_of(word.value);
  if (has_reason(word.kind)) all["why"] = word.value;
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

static agent_word read_word(word_kind kind, const json& all) {
  agent_word word;
  word.kind = kind;
  if (kind == word_kind::hello) {
    word.node = node_resources::from_json(all.at("node").get<std::string>());
    all.at("agent").get_to(word.agent);
    if (word.agent.empty() || word.agent.size() > agent_wire::longest_agent_name)
      throw std::invalid_argument("an agent's name is 1 to 64 bytes long");
  }
  if (kind == word_kind::hello || kind == word_kind::welcome)
    all.at("term").get_to(word.term);
  if (kind == word_kind::welcome || kind == word_kind::place)
    all.at("graph").get_to(word.graph);
  if (kind == word_kind::welcome && all.contains("absence")) {
    word.absence = duration(all.at("absence").get<std::int64_t>());
    if (*word.absence < duration::zero())
      throw std::invalid_argument("a negative absence");
  }
  if (has_steps(kind)) all.at("steps").get_to(word.steps);
  if (kind == word_kind::hello || kind == word_kind::report)
    for (const json& report : all.at("has")) word.has.push_back(report_from(report));
  if (kind == word_kind::report && word.has.size() != 1)
    throw std::invalid_argument("a report of no instance, or of several");
  if (is_about_instance(kind)) {
    all.at("role").get_to(word.instance.role);
    word.instance.index = index_from(all);
    all.at("incarnation").get_to(word.incarnation);
  }
  if (is_about_two(kind)) {
    all.at("about").at("role").get_to(word.about.role);
    word.about.index = index_from(all.at("about"));
  }
  if (kind == word_kind::end) all.at("drains").get_to(word.drains);
  if (kind == word_kind::answer) all.at("is_handled").get_to(word.is_handled);
  if (kind == word_kind::ensure || kind == word_kind::place)
    word.spec = spec_from(all.at("spec"));
  if (is_about_fact(kind)) all.at("key").get_to(word.key);
  if (is_about_fact(kind) || kind == word_kind::join)
    word.value = bytes_of_hex(all.at("value").get<std::string>());
  if (has_reason(kind)) all.at("why").get_to(word.value);
  return word;
}

/// All numbers in words are whole: the conversion of others may be undefined.
static bool whole_numbers(int, json::parse_event_t, const json& value) {
  if (value.is_number_float()) throw std::invalid_argument("a number that is not whole");
  return true;
}

agent_word agent_word_from(word_kind kind, std::string_view text) {
  if (kind < word_kind::hello || kind > word_kind::refusal)
    throw std::invalid_argument(
        fmt::format("a word of kind {}", static_cast<std::uint32_t>(kind)));
  try {
    return read_word(kind, json::parse(text, whole_numbers));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw std::invalid_argument(fmt::format("a word that cannot be read: {}", e.what()));
  }
}

// --- sending and receiving ------------------------------------------------------------

std::optional<agent_word> refusal_of_version(const agent_word& first,
                                             std::string_view theirs,
                                             std::string_view ours) {
  if (first.version == agent_wire::version) return std::nullopt;
  agent_word refusal;
  refusal.kind = word_kind::refusal;
  refusal.version = first.version;
  refusal.value = fmt::format(
      "{} speaks version {} of what the processes of a job say, and {} version {}; "
      "install the same version of manyworlds for both",
      theirs, first.version, ours, agent_wire::version);
  return refusal;
}

/// Reads what it can: another version may say more, or other things.
static agent_word first_word_of_another(const agent_wire::word_head& head,
                                        std::string_view text) {
  agent_word word;
  try {
    word = agent_word_from(head.kind, text);
  } catch (const std::invalid_argument&) {
    word.kind = head.kind;
  }
  word.version = head.version;
  return word;
}

task<void> send_word(world& w, rank_t peer, agent_word word) {
  const agent_wire::word_head head{word.kind, word.version};
  const std::string text = text_of(word);
  co_await w.send_message(head, text, to{peer});
}

task<agent_word> receive_word(world& w, rank_t peer) {
  for (;;) {
    const auto told = co_await w.recv_message<agent_wire::word_head>(from{peer});
    if (told.info.bytes > agent_wire::longest_text) {
      w.fail(fmt::format("a text of {} bytes", told.info.bytes));
      continue;
    }
    std::string text(told.info.bytes, '\0');
    if (told.info.has_payload)
      co_await w.recv(std::as_writable_bytes(std::span(text)), from{peer});
    std::string trouble;
    try {
      const bool is_other = told.head.version != agent_wire::version;
      if (is_other && is_first(told.head.kind))
        co_return first_word_of_another(told.head, text);
      if (is_other && told.head.kind != word_kind::refusal)
        throw std::invalid_argument(
            fmt::format("it speaks version {} of what agents and masters say, and not {}",
                        told.head.version, agent_wire::version));
      agent_word word = agent_word_from(told.head.kind, text);
      word.version = told.head.version;
      co_return word;
    } catch (const std::invalid_argument& e) {
      trouble = e.what();
    }
    w.fail(trouble);
  }
}

}  // namespace manyworlds::inline v0::detail
