#include "manyworlds/world/world.hpp"

#include <fmt/format.h>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/store/run_on.hpp"
#include "manyworlds/world/runtime.hpp"
#include "world/runtime_core.hpp"
#include "world/shrink_protocol.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

formation_awaiter::formation_awaiter(std::shared_ptr<world_core> core)
    : core_(std::move(core)), decided_(core_->decided()) {}

bool formation_awaiter::await_start(continuation& k) {
  core_->begin_forming();
  return decided_.await_start(k);
}

void formation_awaiter::await_resume() const {
  if (core_->epoch() == 0 || core_->state() == world_state::broken) {
    throw world_error(core_->first_failure());
  }
}

executor& formation_awaiter::await_home() const noexcept {
  return core_->runtime().user();
}

std::string_view name_of(world_state s) noexcept {
  switch (s) {
    case world_state::described:
      return "described";
    case world_state::forming:
      return "forming";
    case world_state::up:
      return "up";
    case world_state::closing:
      return "closing";
    case world_state::closed:
      return "closed";
    case world_state::broken:
      break;
  }
  return "broken";
}

device_stream detail::stream_of(const world_core& w) noexcept {
  device_control* const device = w.device();
  return device ? device->stream() : device_stream();
}

void detail::list_graph(world_core& with, graph_entry& graph) {
  if (device_control* const device = with.device()) device->hold(graph);
}

void detail::unlist_graph(world_core& with, graph_entry& graph) noexcept {
  if (device_control* const device = with.device()) device->let_go(graph);
}

world::world(runtime& rt, store& st, world_options options)
    : world(access::core_ptr(rt), st, options) {}

world::world(std::shared_ptr<runtime_core> rt, store& st, world_options options)
    : core_(std::make_shared<world_core>(std::move(rt), st, options)) {}

world& world::operator=(world&& other) noexcept {
  if (this != &other) {
    if (core_) core_->abandon();
    core_ = std::move(other.core_);
  }
  return *this;
}

world::~world() {
  if (core_) core_->abandon();
}

void world::refuse_without_world() {
  throw world_error(manyworlds::failure(
      cause::invalid_argument,
      "this handle has no world: it was default-constructed or moved from"));
}

const world_name& world::name() const { return existing_core().options().name; }
rank_t world::rank() const { return existing_core().options().rank; }
rank_t world::size() const { return existing_core().options().size; }
std::uint64_t world::epoch() const { return existing_core().epoch(); }
world_state world::state() const { return existing_core().state(); }
failure world::failure() const { return existing_core().first_failure(); }
bool world::is_suspect(rank_t rank) const {
  return existing_core().members().is_suspect(rank);
}
const world_view& world::view() const { return existing_core().view(); }

world_history world::history() const {
  world_core& core = existing_core();
  return core.tally().read(core.runtime().user().now());
}

transfer_counters world::counters() const {
  const detail::backend* const moved_by = existing_core().moved_by();
  return moved_by ? moved_by->counters() : transfer_counters();
}
std::string world::transport() const {
  const detail::backend* const moved_by = existing_core().moved_by();
  return moved_by ? moved_by->transport() : "";
}

rank_t world_view::rank_of(const incarnation& id) const noexcept {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].id == id) return static_cast<rank_t>(i);
  }
  return no_rank;
}

task<class failure> world::broken() const {
  const auto core = existing_core().shared_from_this();
  co_await core->over().wait();
  co_return core->first_failure();
}

task<void> world::drained() const {
  const auto core = existing_core().shared_from_this();
  co_await core->drained().wait();
}

task<void> world::leave() {
  const auto core = existing_core().shared_from_this();
  core->begin_leaving();
  co_await core->drained().wait();
  if (core->state() == world_state::broken) throw world_error(core->first_failure());
}

void world::discard(from peer, lane on) {
  world_core& core = existing_core();
  const auto refuse = [&](std::string why) {
    throw world_error(core.describe_failure(cause::invalid_argument, peer.rank(),
                                            operation_kind::receive, std::move(why)));
  };
  const rank_t r = peer.rank();
  if (on.number() & lane::reserved) {
    refuse(fmt::format("discard: lane {:#x} is the library's own", on.number()));
  }
  if (r != no_rank && (r < 0 || r >= size() || r == rank())) {
    refuse(fmt::format("discard: there is no other member of rank {}", r));
  }
  core.discard(r, on);
}

void world::fail(std::string reason) {
  world_core& core = existing_core();
  core.break_with(core.describe_failure(cause::broken_by_user, rank(),
                                        operation_kind::none, std::move(reason)));
}

namespace {

[[noreturn]] void refuse_to_form(const world_core& core) {
  throw world_error(core.describe_failure(
      cause::runtime_stopped, no_rank, operation_kind::form, "the runtime is stopping"));
}

/// Breaks the world. Throws if no world can be formed from now on.
void break_to_form_again(world_core& core, const char* how) {
  core.break_with(core.describe_failure(cause::abandoned, core.options().rank,
                                        operation_kind::none, how));
  // A runtime that has ended does not drain it.
  if (core.runtime().refuses_worlds()) refuse_to_form(core);
  // Left by all others: it is over, and drained when this member leaves, too.
  if (core.state() == world_state::closed) core.begin_leaving();
}

task<world> formed_again(std::shared_ptr<world_core> core, world_options options) {
  // Members that shrink it no longer wait for this one.
  core->take_no_part();
  break_to_form_again(*core, "it is formed again");
  co_await core->drained().wait();
  world next = access::make<world>(core->runtime_ptr(), core->rendezvous(), options);
  co_await next;
  co_return std::move(next);
}

/// Makes the end of a world's runtime wait, since its service thread is needed.
class shrinking {
 public:
  explicit shrinking(world_core& core) : runtime_(core.runtime()) {
    if (!runtime_.begin_shrinking()) refuse_to_form(core);
  }
  shrinking(const shrinking&) = delete;
  shrinking& operator=(const shrinking&) = delete;
  ~shrinking() { runtime_.end_shrinking(); }

 private:
  runtime_core& runtime_;
};

/// The count ends with the frame, on the service thread: the task that awaits this may
/// be unable to turn until the runtime has ended.
task<std::shared_ptr<world_core>> successor_of(std::shared_ptr<world_core> core,
                                               std::unique_ptr<shrinking> counted) {
  const auto until_the_end = std::move(counted);
  shrink_protocol among_survivors(core);
  co_return co_await among_survivors.run();
}

}  // namespace

task<world> world::reform() {
  world_core& core = existing_core();
  return formed_again(core.shared_from_this(), core.options());
}

task<world> world::grow() {
  world_core& core = existing_core();
  world_options whole = core.options();
  whole.rank = core.home_rank();
  whole.size = core.home_size();
  return formed_again(core.shared_from_this(), whole);
}

task<world> world::shrink() {
  const auto core = existing_core().shared_from_this();
  if (core->runtime().is_forked_child() || core->epoch() == 0) {
    const bool forked = core->runtime().is_forked_child();
    throw world_error(core->describe_failure(
        forked ? cause::forked : cause::not_formed, no_rank, operation_kind::form,
        forked ? "" : "only a world that was formed has survivors"));
  }
  break_to_form_again(*core, "its survivors form the next epoch");
  co_await core->drained().wait();
  if (!core->may_take_part()) {
    throw world_error(core->describe_failure(
        core->state() == world_state::closed ? cause::closed : cause::invalid_argument,
        no_rank, operation_kind::form, "this member forms another epoch, or has left"));
  }
  auto counted = std::make_unique<shrinking>(*core);
  auto agreed = successor_of(core, std::move(counted));
  auto next = co_await run_on(core->runtime().service(), std::move(agreed));
  co_return world(std::move(next));
}

rank_t world::previous_rank_of(rank_t rank) const {
  if (rank < 0 || rank >= size()) return no_rank;
  if (!core_->inherits()) return rank;
  MW_ASSERT(core_->inherits()->previous_ranks.size() == static_cast<std::size_t>(size()),
            "a shrunk world knows each member's previous rank");
  return core_->inherits()->previous_ranks[static_cast<std::size_t>(rank)];
}

world_operation<message_info> world::arrival(from peer, source_position where) {
  operation_request r(existing_core(), operation_kind::arrival, peer.rank(), {}, where);
  r.takes_fresh_lanes = true;
  return world_operation<message_info>(std::move(r));
}

world_operation<message_info> world::arrival(from peer, lane on, source_position where) {
  return world_operation<message_info>(operation_request(
      existing_core(), operation_kind::arrival, peer.rank(), on, where));
}

}  // namespace manyworlds::inline v0
