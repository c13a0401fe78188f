#include "mpmd/agent_instance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "exception_text.hpp"
#include "io/process_list.hpp"
#include "launch/error_record.hpp"
#include "launch/plain_text.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/process_address.hpp"
#include "mpmd/instance_fact.hpp"
#include "mpmd/role_variables.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using agent_wire::word_kind;

static std::string joined(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ",") + one;
  return text;
}

/// Returns the start of the names of its files; empty if the agent keeps none.
static std::string files_of(const agent_place& place, const agent_word& ensure) {
  if (place.log_folder.empty()) return {};
  return fmt::format("{}/{}/{}", std::filesystem::absolute(place.log_folder).string(),
                     ensure.instance.text(), ensure.incarnation);
}

constexpr const char* error_file_variable = "TORCHELASTIC_ERROR_FILE";

static std::string log_among(const std::string& files) { return files + ".log"; }
static std::string error_among(const std::string& files) { return files + ".error.json"; }

static process_options options_of(const agent_place& place, const agent_word& ensure,
                                  const std::string& token) {
  const start_spec& spec = ensure.spec;
  process_options how(spec.command.front(),
                      {spec.command.begin() + 1, spec.command.end()});
  for (const auto& [name, value] : spec.variables) how.set(name, value);
  for (auto& [name, value] : variables_of_role(place, ensure, token))
    how.set(name, value);
  if (spec.has_gpus_of_its_own) how.set("CUDA_VISIBLE_DEVICES", joined(spec.gpus));
  if (!spec.folder.empty()) how.folder(spec.folder);
  if (!spec.cpus.empty()) how.cpus({spec.cpus.begin(), spec.cpus.end()});
  if (place.guard != nullptr) how.guarded_by(*place.guard);
  const std::string files = files_of(place, ensure);
  if (!files.empty()) {
    std::filesystem::create_directories(std::filesystem::path(files).parent_path());
    how.output(to_file(log_among(files)));
    // Another job may have left one there.
    std::error_code not_there;
    std::filesystem::remove(error_among(files), not_there);
    if (!spec.variables.contains(error_file_variable))
      how.set(error_file_variable, error_among(files));
  }
  return how;
}

/// Returns what a person has to do before it can be started there; empty where trying
/// again may be enough.
static std::string what_to_do(start_step step, int error) {
  if (step == start_step::folder)
    return "; correct the role's \"folder\", or make that folder on this node";
  if (step != start_step::execute) return {};
  if (error == EACCES || error == EPERM)
    return "; make it executable for the agent's user, or correct the role's \"run\"";
  if (error == ENOEXEC || error == ELIBBAD)
    return "; begin \"run\" with its interpreter, or build it for this node";
  if (error == E2BIG) return "; shorten the role's \"run\" and \"env\"";
  return "; correct the role's \"run\", or install it on this node";
}

/// Returns what it has said of its failure, on one line; empty if it said nothing.
static std::string recorded_error(const std::string& files) {
  std::string why_not;
  const auto record = read_error_record(error_among(files), why_not);
  if (!record) return why_not.empty() ? "" : fmt::format("; its error file {}", why_not);
  std::string text = plain_text(record->message.substr(0, record->message.find('\n')));
  text.resize(std::min(text.size(), agent_wire::longest_exit_text / 8));
  return text.empty() ? "" : fmt::format(": {}", text);
}

/// Returns how it has ended; `files` is the start of its files' names, or empty.
static instance_exit exit_of(const exit_reason& reason, const std::string& files) {
  instance_exit exit{reason.kind, reason.code, reason.signal, reason.text()};
  // Room is left for what follows, and for what its tree did.
  exit.text.resize(std::min(exit.text.size(), agent_wire::longest_exit_text / 2));
  if (reason.kind == exit_kind::not_started) {
    const bool is_named =
        reason.step == start_step::execute || reason.step == start_step::folder;
    if (is_named) exit.code = reason.error;
    if (exit.is_lasting()) exit.text += what_to_do(reason.step, reason.error);
  } else if (!exit.is_success() && reason.kind != exit_kind::stopped && !files.empty()) {
    exit.text += recorded_error(files);
    exit.text +=
        fmt::format("; its output is in {}",
                    log_among(files).substr(0, agent_wire::longest_exit_text / 4));
  }
  return exit;
}

static instance_exit not_started(int error, std::string_view why) {
  instance_exit exit;
  exit.kind = exit_kind::not_started;
  exit.code = error;
  exit.text = fmt::format("cannot be started: {}", why);
  return exit;
}

agent_instance::agent_instance(runtime& rt, const agent_place& place,
                               const agent_word& ensure,
                               std::function<void(const agent_instance&)> told)
    : runtime_(rt),
      spec_(ensure.spec),
      token_(fmt::format("{:016x}", access::core(rt).random_word())),
      told_(std::move(told)) {
  report_.instance = ensure.instance;
  report_.incarnation = ensure.incarnation;
  try {
    if (spec_.command.empty()) throw std::invalid_argument("no program is named");
    process_ =
        std::make_unique<supervised_process>(rt, options_of(place, ensure, token_));
    files_ = files_of(place, ensure);
  } catch (const std::invalid_argument& e) {
    // Options that make no sense do not get better.
    report_.exit = not_started(EINVAL, e.what());
  } catch (const std::exception& e) {
    report_.exit = not_started(0, e.what());
  }
}

void agent_instance::become(instance_life life) {
  report_.life = life;
  told_(*this);
}

// --- its process ----------------------------------------------------------------------

task<void> agent_instance::run(std::shared_ptr<agent_instance> self) {
  agent_instance& own = *self;
  if (own.process_) {
    bool has_started = false;
    try {
      co_await own.process_->started();
      has_started = true;
    } catch (const process_error&) {
      // Why is the reason of its end.
    }
    if (has_started && !own.is_told_to_end_) {
      own.report_.pid = own.process_->pid();
      if (const auto seen = look_at_process(own.process_->pid()))
        own.report_.start_time = seen->started;
      const bool is_ready = !own.spec_.waits_until_ready || own.says_ready_;
      own.become(is_ready ? instance_life::ready : instance_life::running);
    }
    const exit_reason reason = co_await own.process_->ended();
    own.report_.exit = exit_of(reason, own.files_);
    try {
      // What it has started ends with it, before another incarnation begins.
      co_await own.process_->stop(grace(duration::zero()));
    } catch (const process_error& e) {
      own.report_.exit.text += fmt::format("; {}", e.what());
    }
    std::string& text = own.report_.exit.text;
    text.resize(std::min(text.size(), agent_wire::longest_exit_text));
  }
  own.become(instance_life::ended);
  own.over_.set();
}

task<void> agent_instance::end(std::shared_ptr<agent_instance> self, bool drains) {
  agent_instance& own = *self;
  const bool is_first = !std::exchange(own.is_told_to_end_, true);
  // Who let it drain may have been cancelled: the last call, which does not, ends it.
  if (own.is_over() || !own.process_ || (!is_first && drains)) co_return;
  if (is_first) own.become(instance_life::ending);
  if (drains && own.joined_ != nullptr && own.spec_.drain > duration::zero()) {
    agent_word leaving;
    leaving.kind = word_kind::leaving;
    leaving.instance = own.report_.instance;
    leaving.incarnation = own.report_.incarnation;
    own.pass(std::move(leaving));
    try {
      static_cast<void>(co_await own.process_->ended().within(own.spec_.drain));
    } catch (const timed_out&) {
      // It has had its time.
    }
  }
  try {
    co_await own.process_->stop(grace(own.spec_.grace));
  } catch (const process_error& e) {
    access::core(own.runtime_).log(log_level::error, e.what());
  }
}

// --- its workload ---------------------------------------------------------------------

task<void> agent_instance::serve(std::shared_ptr<agent_instance> self, world& w,
                                 const std::string& graph,
                                 const current_outbox& to_master) {
  agent_instance& own = *self;
  // Its end of the link may have noticed a break that this one has not.
  if (own.joined_ != nullptr) own.joined_->fail("the workload has joined again");
  const struct joining {
    agent_instance& of;
    world& with;
    joining(agent_instance& own, world& w) : of(own), with(w) { of.joined_ = &w; }
    ~joining() {
      if (of.joined_ == &with) of.joined_ = nullptr;
    }
  } while_it_lasts(own, w);
  agent_outbox out;
  const current_outbox::while_connected current(own.to_workload_, out);
  agent_word place;
  place.kind = word_kind::place;
  place.instance = own.report_.instance;
  place.incarnation = own.report_.incarnation;
  place.spec.facts = own.spec_.facts;
  place.graph = graph;
  out.push(std::move(place));
  if (own.report_.life == instance_life::ending) {
    agent_word leaving;
    leaving.kind = word_kind::leaving;
    leaving.instance = own.report_.instance;
    leaving.incarnation = own.report_.incarnation;
    out.push(std::move(leaving));
  }
  auto read = [&]() -> task<void> {
    for (;;) {
      agent_word word = co_await receive_word(w, 1);
      if (!own.hear(std::move(word), to_master))
        w.fail("a workload says what only others do");
    }
  };
  co_await when_any(read(), out.write(w, 1));
}

bool agent_instance::hear(agent_word word, const current_outbox& to_master) {
  switch (word.kind) {
    case word_kind::ready:
      // It says so once. The thread that has started it may be slower than all of it.
      says_ready_ = true;
      if (report_.life == instance_life::running) become(instance_life::ready);
      return true;
    case word_kind::progress:
      report_.progress = word.steps;
      return true;
    case word_kind::fact:
      hear_fact(std::move(word), to_master);
      return true;
    case word_kind::answer:
      to_master.push(std::move(word));
      return true;
    case word_kind::lost:
      word.instance = report_.instance;
      word.incarnation = report_.incarnation;
      word.value.resize(std::min(word.value.size(), agent_wire::longest_exit_text));
      to_master.push(std::move(word));
      return true;
    default:
      return false;
  }
}

/// It is kept until it is recorded: the master that is there may not live as long.
void agent_instance::hear_fact(agent_word word, const current_outbox& to_master) {
  word.instance = report_.instance;
  word.incarnation = report_.incarnation;
  std::string objection(objection_to_fact(word.key, word.value.size()));
  if (!unrecorded_.contains(word.key) && unrecorded_.size() == most_facts)
    objection = "it is one fact too many";
  if (!objection.empty()) {
    word.kind = word_kind::fact_recorded;
    word.value = std::move(objection);
    pass(std::move(word));
    return;
  }
  unrecorded_[word.key] = word;
  to_master.push(std::move(word));
}

void agent_instance::note_recorded(agent_word word) {
  const auto at = unrecorded_.find(word.key);
  if (at != unrecorded_.end() && at->second.steps == word.steps) unrecorded_.erase(at);
  pass(std::move(word));
}

void agent_instance::tell_facts(const current_outbox& to_master) const {
  for (const auto& [key, word] : unrecorded_) to_master.push(word);
}

}  // namespace manyworlds::inline v0::detail
