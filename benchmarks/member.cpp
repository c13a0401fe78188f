#include "member.hpp"

#include <cstdint>
#include <span>
#include <stdexcept>

#include "report.hpp"

namespace mwbench {

namespace {

mw::task<void> form(mw::world& w) { co_await w; }

double us(mw::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

/// `128:3` is three turns of 128 us and more, and less than twice that.
std::string text_of(const mw::time_histogram& times) {
  std::string text;
  for (std::size_t b = 0; b < times.buckets; ++b) {
    if (times.counts[b] == 0) continue;
    if (!text.empty()) text += ' ';
    text += std::to_string(static_cast<std::uint64_t>(us(times.begin_of(b)))) + ':' +
            std::to_string(times.counts[b]);
  }
  return text;
}

}  // namespace

void member::tell_turns() {
  report out(common_.json, common_.transport());
  const auto tell = [&](std::string_view whose, const mw::time_histogram& times) {
    out.row({
        {"bench", "turns"},
        {"transport", common_.transport()},
        {"whose", whose},
        {"turns", times.count()},
        {"p50_us", us(times.quantile(0.5))},
        {"p99_us", us(times.quantile(0.99))},
        {"longest_us", us(times.longest)},
        {"histogram", text_of(times)},
    });
  };
  const mw::turn_times user = runtime_.turns();
  const mw::turn_times service = runtime_.service().times();
  tell("library", user.library);
  tell("tasks", user.tasks);
  tell("service", service.library);
  tell("service tasks", service.tasks);
}

mw::task<void> form_all(std::vector<mw::world>& worlds) {
  std::vector<mw::task<void>> forming;
  for (mw::world& w : worlds) forming.push_back(form(w));
  co_await mw::when_all(std::move(forming));
}

mw::task<void> leave_all(std::vector<mw::world>& worlds) {
  std::vector<mw::task<void>> leaving;
  for (mw::world& w : worlds) leaving.push_back(w.leave());
  co_await mw::when_all(std::move(leaving));
}

mw::task<void> park(mw::world& w, mw::rank_t peer, mw::lane on) {
  char byte = 0;
  const auto ended =
      co_await mw::outcome(w.recv(std::span(&byte, 1), mw::from{peer}, on));
  if (ended) throw std::logic_error("a parked receive got a message");
  if (ended.error().cause != mw::cause::closed) throw mw::world_error(ended.error());
}

}  // namespace mwbench
