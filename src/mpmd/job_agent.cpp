#include "mpmd/job_agent.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "duration_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/serve/accept.hpp"
#include "manyworlds/serve/connect.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using agent_wire::word_kind;

constexpr std::size_t most_workloads = 4096;
constexpr duration between_progress_told = std::chrono::seconds(1);
constexpr duration between_looks_for_masters = std::chrono::seconds(1);
constexpr duration pause_after_master = std::chrono::milliseconds(20);
constexpr duration pause_after_refusal = std::chrono::milliseconds(200);
// Twice what it takes to miss a silent one.
constexpr duration patience_with_refusals = std::chrono::seconds(10);

job_agent::job_agent(runtime& rt, store& meeting, node_resources node, agent_place place)
    : runtime_(rt),
      meeting_(meeting, place.job),
      node_(std::move(node)),
      place_(std::move(place)),
      name_(fmt::format("{:016x}", access::core(rt).random_word())) {}

task<void> job_agent::run() {
  // The link to the master is kept meanwhile: with it, the master would take the
  // instances to be gone while they still end.
  auto end = [this]() -> task<void> {
    co_await told_to_end_;
    is_leaving_ = true;
    co_await end_all(false);
  };
  // So it is here: a master may be back meanwhile.
  auto give_up = [this]() -> task<void> {
    co_await miss_masters();
    is_leaving_ = true;
    co_await end_all(true);
  };
  const auto body = [&](scope& s) -> task<void> {
    const accept_options workloads{.service = job_meeting::workloads_of(place_.node),
                                   .most = most_workloads};
    s.spawn(accept(runtime_, meeting_.keys(), workloads,
                   [this](world& w) { return serve_workload(w); }));
    s.spawn(tell_progress());
    co_await when_any(follow_masters(s), end(), give_up());
    co_await end_all(false);
    s.cancel();
  };
  co_await scope::run(body);
  if (!missed_.empty()) throw std::runtime_error(missed_);
  if (!refused_.empty()) throw std::runtime_error(refused_);
}

// --- masters --------------------------------------------------------------------------

task<void> job_agent::follow_masters(scope& s) {
  // From the first refusal to the latest: while there is no master, none refuses it.
  std::optional<time_point> refused_since;
  const auto goes_on = [&] {
    if (refused_.empty()) refused_since.reset();
    if (!refused_.empty() && !refused_since) refused_since = refused_at_;
    const bool is_refused =
        refused_since && refused_at_ - *refused_since >= patience_with_refusals;
    return !is_over_ && !runtime_.is_stopping() && !is_refused;
  };
  while (goes_on()) {
    const std::uint64_t least = term_ == 0 ? 0 : term_ - 1;
    const std::uint64_t term = co_await meeting_.announced_above(least);
    term_ = std::max(term_, term);
    const auto serve = [&](world& w) { return serve_master(w, s, term); };
    auto hear = [&]() -> task<void> {
      co_await connect(runtime_, meeting_.keys(),
                       {.service = job_meeting::agents_of(term)}, serve);
    };
    auto newer = [&]() -> task<void> {
      static_cast<void>(co_await meeting_.announced_above(term));
    };
    try {
      co_await when_any(hear(), newer());
    } catch (const world_error& e) {
      access::core(runtime_).log(log_level::warning, e.what());
    }
    // A master that leaves at once is not asked again at once.
    const duration pause = refused_.empty() ? pause_after_master : pause_after_refusal;
    if (goes_on()) co_await sleep_for(pause);
  }
}

task<void> job_agent::miss_masters() {
  std::optional<time_point> since;
  for (;; co_await sleep_for(between_looks_for_masters)) {
    const time_point now = runtime_.home().now();
    if (to_master_.is_there() || !absence_) {
      since.reset();
    } else if (!since) {
      since = now;
    } else if (now - *since >= *absence_) {
      break;
    }
  }
  missed_ = fmt::format(
      "node \"{}\" has heard no master for {}, which is the job's absence: its instances "
      "were ended",
      node_.name, duration_text(*absence_));
  access::core(runtime_).log(log_level::error, missed_);
}

agent_word job_agent::hello() const {
  agent_word word;
  word.kind = word_kind::hello;
  word.term = term_;
  word.node = node_;
  word.agent = name_;
  // As with `tell`: what has ended as it leaves has not failed.
  for (const auto& [id, instance] : instances_)
    if (!is_leaving_ || !instance->is_over()) word.has.push_back(instance->report());
  return word;
}

task<void> job_agent::serve_master(world& w, scope& s, std::uint64_t term) {
  agent_word first = hello();
  co_await send_word(w, 0, std::move(first));
  agent_word answer = co_await receive_word(w, 0);
  if (answer.kind == word_kind::refusal) {
    refused_ = fmt::format("the master refuses this agent of node \"{}\": {}", node_.name,
                           answer.value);
    refused_at_ = runtime_.home().now();
    co_return;
  }
  if (answer.kind != word_kind::welcome || answer.term != term || answer.term < term_) {
    w.fail(fmt::format("a master of term {}, where term {} was heard of", answer.term,
                       term_));
    co_return;
  }
  refused_.clear();
  graph_ = std::move(answer.graph);
  absence_ = answer.absence;
  agent_outbox out;
  const current_outbox::while_connected current(to_master_, out);
  // What changed since the hello, and what it does not say.
  for (const auto& [id, instance] : instances_) {
    tell(instance->report());
    instance->tell_facts(to_master_);
  }
  co_await when_any(obey(w, s), out.write(w, 0));
}

task<void> job_agent::obey(world& w, scope& s) {
  while (!is_over_) {
    agent_word word = co_await receive_word(w, 0);
    if (word.kind < word_kind::ensure || word.kind > word_kind::over) {
      w.fail("a master says what only an agent does");
      continue;
    }
    carry_out(std::move(word), s);
  }
}

/// While it leaves, its instances end by its own hand: that is no failure of theirs, and
/// its master hears of it when the link ends.
void job_agent::tell(const instance_report& report) {
  if (is_leaving_) return;
  agent_word word;
  word.kind = word_kind::report;
  word.has.push_back(report);
  to_master_.push(std::move(word));
}

task<void> job_agent::tell_progress() {
  for (;; co_await sleep_for(between_progress_told)) {
    for (const auto& [id, instance] : instances_) {
      const instance_report& report = instance->report();
      if (report.progress == 0 || !to_master_.is_there()) continue;
      std::uint64_t& told = progress_told_[id];
      if (std::exchange(told, report.progress) != report.progress) tell(report);
    }
  }
}

// --- orders ---------------------------------------------------------------------------

std::shared_ptr<agent_instance> job_agent::find(const instance_id& id,
                                                std::uint64_t incarnation) const {
  const auto at = instances_.find(id);
  const bool is_it =
      at != instances_.end() && at->second->report().incarnation == incarnation;
  return is_it ? at->second : nullptr;
}

void job_agent::carry_out(agent_word word, scope& s) {
  if (word.kind == word_kind::over) {
    is_over_ = true;
    return;
  }
  if (word.kind == word_kind::ensure) {
    if (!is_leaving_) ensure(std::move(word), s);
    return;
  }
  if (word.kind == word_kind::ask) {
    const auto at = instances_.find(word.instance);
    if (at != instances_.end()) at->second->pass(std::move(word));
    return;
  }
  const auto instance = find(word.instance, word.incarnation);
  if (!instance) return;
  if (word.kind == word_kind::end) {
    if (instance->is_over()) {
      tell(instance->report());
    } else {
      s.spawn(agent_instance::end(instance, word.drains));
    }
  } else if (word.kind == word_kind::fact_recorded) {
    instance->note_recorded(std::move(word));
  } else if (word.kind == word_kind::recorded && instance->is_over()) {
    progress_told_.erase(word.instance);
    instances_.erase(word.instance);
  }
}

/// Starts an incarnation once, whatever happens to the order on its way (law G-a).
void job_agent::ensure(agent_word word, scope& s) {
  const auto at = instances_.find(word.instance);
  std::shared_ptr<agent_instance> before;
  if (at != instances_.end()) {
    before = at->second;
    if (before->report().incarnation >= word.incarnation) {
      tell(before->report());
      return;
    }
    if (!before->is_over()) s.spawn(agent_instance::end(before, false));
  }
  const auto told = [this](const agent_instance& of) {
    if (find(of.report().instance, of.report().incarnation)) tell(of.report());
  };
  const auto own = std::make_shared<agent_instance>(runtime_, place_, word, told);
  instances_[word.instance] = own;
  progress_told_.erase(word.instance);
  s.spawn(start(own, before));
}

task<void> job_agent::start(std::shared_ptr<agent_instance> own,
                            std::shared_ptr<agent_instance> before) {
  if (before) co_await before->over();
  co_await agent_instance::run(own);
}

task<void> job_agent::end_all(bool drains) {
  // An end that a master records meanwhile is taken off the map.
  const auto all = instances_;
  const auto body = [&](scope& s) -> task<void> {
    for (const auto& [id, instance] : all) s.spawn(agent_instance::end(instance, drains));
    co_return;
  };
  co_await scope::run(body);
  for (const auto& [id, instance] : all) co_await instance->over();
}

// --- workloads ------------------------------------------------------------------------

task<void> job_agent::serve_workload(world& w) {
  const agent_word join = co_await receive_word(w, 1);
  auto other = refusal_of_version(join, "this process", "the agent of its node");
  if (other) {
    co_await send_word(w, 1, std::move(*other));
    co_return;
  }
  const auto instance = find(join.instance, join.incarnation);
  const bool is_own = join.kind == word_kind::join && instance && !instance->is_over() &&
                      instance->knows(join.value);
  if (!is_own) {
    agent_word refusal;
    refusal.kind = word_kind::refusal;
    refusal.value =
        fmt::format("no process of {} is known by that token", join.instance.text());
    co_await send_word(w, 1, std::move(refusal));
    co_return;
  }
  co_await agent_instance::serve(instance, w, graph_, to_master_);
}

}  // namespace manyworlds::inline v0::detail
