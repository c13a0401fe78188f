#include "mpmd/job_leadership.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/serve/accept.hpp"
#include "manyworlds/serve/connect.hpp"
#include "manyworlds/store/store_error.hpp"
#include "mpmd/job_context.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

constexpr duration pause_after_trouble = std::chrono::milliseconds(500);

job_leadership::job_leadership(runtime& rt, store& meeting, context_store& context,
                               master_seat& seat, std::optional<job_graph> begins,
                               std::string job, master_options options)
    : runtime_(rt),
      meeting_(meeting),
      keys_(meeting, job),
      context_(context),
      seat_(seat),
      begins_(std::move(begins)),
      job_(std::move(job)),
      options_(std::move(options)),
      name_(fmt::format("{:016x}", access::core(rt).random_word())) {}

void job_leadership::note(const std::string& line) const {
  access::core(runtime_).log(log_level::info,
                             fmt::format("master {} of \"{}\": {}", name_, job_, line));
}

task<int> job_leadership::run() {
  for (;;) {
    const std::optional<int> code = co_await lead();
    if (code) co_return *code;
    co_await sleep_for(pause_after_trouble);
  }
}

/// It is asked before a term is taken: that would depose the job's own master.
task<std::string> job_leadership::objection_to_graph() {
  if (!begins_) co_return std::string();
  const context_values rows = co_await context_.load();
  if (rows.empty()) co_return std::string();
  const job_context job(rows);
  if (job.graph() == *begins_) co_return std::string();
  co_return of_another_graph(job, context_.where());
}

/// Only what another try may mend is caught: a damaged context is not.
task<std::optional<int>> job_leadership::lead() {
  std::string trouble;
  bool was_deposed = false;
  try {
    std::string objection = co_await objection_to_graph();
    if (!objection.empty()) throw std::invalid_argument(objection);
    co_await take_seat();
    const bool is_gone = co_await is_forgotten();
    if (is_gone) {
      note("the job was over, and was erased");
      co_await leave_seat();
      co_return 0;
    }
    // Another job may have begun while this master stood by.
    if (seen_term_ > 0) objection = co_await objection_to_graph();
    if (!objection.empty()) {
      co_await leave_seat();
      throw std::invalid_argument(objection);
    }
    const int code = co_await lead_one_term();
    co_return code;
  } catch (const context_error& e) {
    const bool may_stand_by = e.kind() == context_trouble::deposed && seat_.keeps_apart();
    if (e.kind() != context_trouble::unreachable && !may_stand_by) throw;
    trouble = e.what();
    was_deposed = e.kind() == context_trouble::deposed;
  } catch (const store_error& e) {
    trouble = e.what();
  }
  access::core(runtime_).log(log_level::warning, trouble);
  // It may have had the seat again, and would stand by for itself.
  if (was_deposed) co_await leave_seat();
  co_return std::nullopt;
}

task<int> job_leadership::lead_one_term() {
  job_master master(runtime_, meeting_, context_, begins_, job_, options_);
  int code = 0;
  const auto body = [&](scope& s) -> task<void> {
    s.spawn(greet_standbys());
    s.spawn(keep_seat(master));
    code = co_await master.run();
    s.cancel();
  };
  co_await scope::run(body);
  co_await leave_seat();
  co_return code;
}

// --- the seat -------------------------------------------------------------------------

task<void> job_leadership::take_seat() {
  for (;;) {
    const bool is_ours = co_await seat_.take(name_);
    if (is_ours) co_return;
    const std::optional<seat_holder> leader = co_await seat_.holder();
    if (leader) co_await stand_by(*leader);
  }
}

task<void> job_leadership::leave_seat() {
  try {
    co_await seat_.leave();
  } catch (const context_error& e) {
    // Its lease ends by itself.
    note(e.what());
  }
}

/// A seat that is only lost deposes none. But a master that another has followed may have
/// nothing to record, and no agent that tells it so: an idle one would go on in its old
/// term until it misses its agents, and would not stand by meanwhile.
task<void> job_leadership::keep_seat(const job_master& master) {
  for (;;) {
    const std::string why = co_await seat_.lost();
    note(fmt::format("the seat is lost, and this master leads on: {}", why));
    bool is_ours = false;
    while (!is_ours) {
      std::uint64_t newest = 0;
      try {
        // Ahead of the seat: one that another has followed does not take it.
        newest = co_await context_.term();
        const bool is_newest = newest <= master.term();
        std::optional<seat_holder> other;
        if (is_newest) other = co_await seat_.holder();
        if (is_newest && !other) is_ours = co_await seat_.take(name_);
      } catch (const context_error&) {
        // It is tried again.
      }
      // While it has yet to take its term, that fails by itself.
      if (master.term() > 0 && newest > master.term())
        throw context_error(
            context_trouble::deposed,
            fmt::format("another master has term {}, and this one had term {}", newest,
                        master.term()));
      if (!is_ours) co_await sleep_for(pause_after_trouble);
    }
  }
}

// --- standing by ----------------------------------------------------------------------

task<void> job_leadership::stand_by(seat_holder leader) {
  note(fmt::format("stands by for master {}", leader.address));
  auto [death, end, none] =
      co_await when_any(see_death_of(leader), seat_.until_free(leader), note_term());
  static_cast<void>(end);
  static_cast<void>(none);
  if (!death) co_return;
  note(fmt::format("has seen master {} die", leader.address));
  co_await seat_.free(leader);
}

task<void> job_leadership::note_term() {
  event never;
  while (seen_term_ == 0) {
    try {
      seen_term_ = co_await context_.term();
    } catch (const context_error&) {
      // It is asked again.
    }
    if (seen_term_ == 0) co_await sleep_for(pause_after_trouble);
  }
  co_await never;
}

/// Terms only grow, so that one that is not there was erased with all the rest. A master
/// that is given a graph would take it for a job that has yet to begin.
task<bool> job_leadership::is_forgotten() {
  const std::uint64_t now = co_await context_.term();
  co_return now < seen_term_;
}

task<void> job_leadership::see_death_of(seat_holder leader) {
  event died;
  const auto listen = [&](world& w) -> task<void> {
    std::byte nothing{};
    try {
      co_await w.recv(std::span(&nothing, 1), from{0});
    } catch (const world_error& e) {
      if (e.cause() == cause::peer_died) died.set();
      throw;
    }
  };
  auto watch = [&]() -> task<void> {
    co_await connect(runtime_, keys_.keys(),
                     {.service = job_meeting::standbys_of(leader.address)}, listen,
                     after_close::form_again);
  };
  auto see = [&]() -> task<void> { co_await died; };
  co_await when_any(see(), watch());
}

task<void> job_leadership::greet_standbys() {
  const auto hold = [](world& w) -> task<void> {
    std::byte nothing{};
    co_await w.recv(std::span(&nothing, 1), from{1});
  };
  co_await accept(runtime_, keys_.keys(), {.service = job_meeting::standbys_of(name_)},
                  hold);
}

}  // namespace manyworlds::inline v0::detail
