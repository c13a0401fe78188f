#include "manyworlds/serve/world_manager.hpp"

#include <fmt/format.h>

#include <utility>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/world/outcome.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// Returns whether the world is over, or was cut off before its forming began.
bool is_over(const world& w) noexcept {
  return !w || w.state() == world_state::described || w.state() == world_state::broken ||
         w.state() == world_state::closed;
}

[[noreturn]] void refuse(const world_name& name, std::string_view why) {
  failure f(cause::invalid_argument,
            fmt::format("the manager's world {} {}", name.view(), why));
  f.world = name;
  throw world_error(std::move(f));
}

}  // namespace

class world_manager::turn {
 public:
  explicit turn(std::shared_ptr<entry> e) : entry_(std::move(e)) {
    if (entry_->is_removed) refuse(entry_->options.name, "is being removed");
    if (entry_->is_busy) refuse(entry_->options.name, "is already being formed");
    entry_->is_busy = true;
    entry_->idle.reset();
  }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;
  ~turn() {
    // It was cut off while the world was forming.
    if (entry_->w.state() == world_state::forming)
      entry_->w.fail("the task that formed it was cancelled");
    MW_ASSERT(entry_->is_busy, "an entry has one turn at a time");
    entry_->is_busy = false;
    entry_->idle.set();
  }

  [[nodiscard]] entry& operator*() const noexcept { return *entry_; }

 private:
  const std::shared_ptr<entry> entry_;
};

/// Marks an entry as being removed, from its construction on, before its task begins.
class world_manager::removal {
 public:
  explicit removal(std::shared_ptr<entry> e) : entry_(std::move(e)) {
    if (entry_->is_removed) refuse(entry_->options.name, "is already being removed");
    entry_->is_removed = true;
    entry_->removal_ended.reset();
  }
  removal(const removal&) = delete;
  removal& operator=(const removal&) = delete;
  ~removal() {
    MW_ASSERT(entry_->is_removed, "an entry has one removal at a time");
    entry_->is_removed = false;
    entry_->removal_ended.set();
  }

  [[nodiscard]] entry& operator*() const noexcept { return *entry_; }

 private:
  const std::shared_ptr<entry> entry_;
};

task<void> world_manager::form(world_options options) {
  if (const std::string wrong = validate(options); !wrong.empty()) {
    failure f(cause::invalid_argument, wrong);
    f.world = options.name;
    throw world_error(std::move(f));
  }
  auto found = worlds_.find(options.name.view());
  if (found == worlds_.end()) {
    auto made = std::make_shared<entry>();
    made->w = world(runtime_, store_, options);
    found = worlds_.emplace(options.name.str(), std::move(made)).first;
  }
  const entry& last = *found->second;
  if (!last.is_busy && !last.is_removed && !is_over(last.w)) {
    refuse(options.name, fmt::format("is {}: remove it first, or let it be formed again",
                                     name_of(last.w.state())));
  }
  const turn mine(found->second);
  (*mine).options = options;
  co_await form_next(*mine);
}

task<void> world_manager::reform(world_name name) {
  const turn mine(get(name));
  const auto core = access::core_ptr((*mine).w);
  core->break_with(core->describe_failure(cause::abandoned, core->options().rank,
                                          operation_kind::none,
                                          "its member forms it again"));
  co_await form_next(*mine);
}

// Forms the next world in the place of the last one. Nothing of the last one is left
// when the next begins.
task<void> world_manager::form_next(entry& e) {
  if (e.w.state() != world_state::described) {
    access::core(e.w).begin_leaving();
    co_await e.w.drained();
  }
  if (e.is_removed) refuse(e.options.name, "is being removed");
  e.w = world(runtime_, store_, e.options);
  const auto formed = co_await outcome(e.w);
  if (formed) co_return;
  co_await e.w.drained();
  throw world_error(formed.error());
}

task<void> world_manager::remove(world_name name) {
  co_await remove_entry(std::make_unique<removal>(get(name)));
}

task<void> world_manager::remove_entry(std::unique_ptr<removal> of) {
  entry& e = **of;
  if (e.w.state() == world_state::forming) e.w.fail("its member removes it");
  co_await e.idle;
  const bool was_over = is_over(e.w);
  const auto left = co_await outcome(e.w.leave());
  co_await e.w.drained();
  [[maybe_unused]] const auto erased = worlds_.erase(e.options.name.str());
  MW_ASSERT(erased == 1, "a name is listed until its removal ends");
  if (!left && !was_over) throw world_error(left.error());
}

task<void> world_manager::remove_all() {
  // The world's events and log have reported what it throws.
  auto remove_one = [this](std::unique_ptr<removal> of) -> task<void> {
    (void)co_await outcome(remove_entry(std::move(of)));
  };
  // The task that removes it already may be cut off.
  auto await_removal = [&](std::shared_ptr<entry> e) -> task<void> {
    while (e->is_removed) co_await e->removal_ended;
    const auto found = worlds_.find(e->options.name.view());
    if (found == worlds_.end() || found->second != e) co_return;
    co_await remove_one(std::make_unique<removal>(std::move(e)));
  };
  auto all = [&](scope& s) -> task<void> {
    for (const auto& [name, e] : worlds_) {
      if (e->is_removed) {
        s.spawn(await_removal(e));
      } else {
        s.spawn(remove_one(std::make_unique<removal>(e)));
      }
    }
    co_return;
  };
  co_await scope::run(all);
}

std::shared_ptr<world_manager::entry> world_manager::get(std::string_view name) const {
  const auto found = worlds_.find(name);
  if (found != worlds_.end()) return found->second;
  std::string known;
  for (const auto& [each, e] : worlds_) known += (known.empty() ? "" : ", ") + each;
  throw unknown_world(fmt::format("no world \"{}\" here; there {}{}", name,
                                  known.empty() ? "is none" : "are: ", known));
}

world& world_manager::operator[](std::string_view name) const { return get(name)->w; }

world* world_manager::find(std::string_view name) const noexcept {
  const auto found = worlds_.find(name);
  return found == worlds_.end() ? nullptr : &found->second->w;
}

std::vector<world_status> world_manager::list() const {
  std::vector<world_status> all;
  for (const auto& [name, e] : worlds_) {
    world_status s;
    s.name = e->options.name;
    s.state = e->w.state();
    s.epoch = e->w.epoch();
    s.rank = e->w.rank();
    s.size = e->w.size();
    s.failure = e->w.failure();
    for (rank_t r = 0; r < s.size; ++r) {
      if (e->w.is_suspect(r)) s.suspects.push_back(r);
    }
    all.push_back(std::move(s));
  }
  return all;
}

world_events world_manager::events(std::size_t capacity) const {
  return world_events(access::core(runtime_).events().subscribe(capacity));
}

}  // namespace manyworlds::inline v0
