#include "manyworlds/spmd/session.hpp"

#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "spmd/local_places.hpp"
#include "spmd/mixed_source.hpp"
#include "spmd/node_source.hpp"
#include "spmd/session_core.hpp"
#include "spmd/worker_device.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

// --- drefs and requests ------------------------------------------------------------

namespace detail {

void register_dropper::operator()(register_node* node) const noexcept {
  dropped_registers::drop(std::unique_ptr<register_node>(node));
}

std::shared_ptr<session_core> session_of(const register_node* node) {
  if (node == nullptr) throw std::invalid_argument("a dref that refers to nothing");
  std::shared_ptr<session_core> of = node->of.lock();
  if (!of) throw std::invalid_argument("the session of a dref has ended");
  return of;
}

register_id register_in(const session_core& session, const register_node* node) {
  if (session_of(node).get() != &session)
    throw std::invalid_argument("a dref of another session");
  return node->id;
}

remote_request request_on(const std::shared_ptr<session_core>& core,
                          const std::vector<int>& workers) {
  if (!core) throw std::invalid_argument("a handle without a session");
  remote_request request;
  request.core = core;
  request.workers = workers;
  return request;
}

remote_request sync_request(std::shared_ptr<session_core> core, std::vector<int> workers,
                            source_position where) {
  remote_request request = request_on(core, workers);
  request.where = where;
  return request;
}

sync_awaitable await_register(const register_node* node, source_position where) {
  const std::shared_ptr<session_core> core = session_of(node);
  remote_request request = request_on(core, core->workers_of(node->id));
  request.where = where;
  request.into = node->id;
  return sync_awaitable(std::move(request));
}

remote_request local_request(const std::shared_ptr<session_core>& core,
                             const register_node* of, type_token wanted,
                             source_position where) {
  remote_request request = request_on(core, {0});
  request.where = where;
  request.function = local_function.name();
  request.types = local_function.types().number();
  request.is_alone = true;
  request.take(register_in(*core, of));
  request.local = std::make_shared<local_place>(wanted);
  return request;
}

// --- awaiters ------------------------------------------------------------

remote_awaiter::remote_awaiter(remote_request&& request) noexcept
    : request_(std::move(request)) {}

remote_awaiter::~remote_awaiter() {
  MW_ASSERT(!record_ || record_->waiter == nullptr,
            "an awaiter outlives the operation that it waits for");
}

bool remote_awaiter::await_start(continuation& k) {
  try {
    record_ = request_.core->issue(request_);
    // What is accepted at once keeps its task going: the world counts what it takes so,
    // and lets a loop of them wait for its turn (law 9).
    if (request_.core->take_answer(*record_)) return false;
    record_->waiter = &k;
  } catch (...) {
    // Told in a turn of its own: who tries again and again keeps no other task waiting.
    refused_ = std::current_exception();
    k.resume();
  }
  return true;
}

bool remote_awaiter::await_cancel() noexcept {
  if (!record_) return false;
  continuation* const waiter = std::exchange(record_->waiter, nullptr);
  if (waiter == nullptr) return false;
  record_->was_cancelled = true;
  record_->deadline.end();
  // A sync changes nothing at the workers: their answers find no awaiter.
  if (record_->is_sync()) return true;
  request_.core->give_up(*record_, cause::cancelled);
  if (!record_->is_being_sent()) return true;
  record_->waiter = waiter;
  return false;
}

bool remote_awaiter::await_must_resume() const noexcept {
  return !record_ || !record_->was_cancelled;
}

void remote_awaiter::check() const {
  if (refused_) std::rethrow_exception(refused_);
  const std::exception_ptr error = request_.core->error_of(*record_);
  if (!error) return;
  request_.core->note_told(*record_);
  std::rethrow_exception(error);
}

register_handle remote_awaiter::take_register() noexcept {
  MW_ASSERT(record_->result, "a call that gives a register has made one");
  return std::move(record_->result);
}

void* remote_awaiter::keep_local() const {
  return request_.core->keep_local(*record_, request_.local->take());
}

value_reader remote_awaiter::answer_of(std::size_t rank) const {
  call_answer& given = record_->answers[rank];
  return given.block.values_at(0, given.values, given.beside);
}

std::size_t remote_awaiter::answers() const noexcept { return record_->answers.size(); }

std::size_t remote_awaiter::rank_of_answer() const noexcept { return record_->from; }

void sync_awaiter::await_resume() const {
  check();
  tell_of_earlier();
}

void remote_awaiter::tell_of_earlier() const {
  if (const std::exception_ptr error = request_.core->take_untold(request_.into))
    std::rethrow_exception(error);
}

}  // namespace detail

remote_call<tensor> mesh::put(const_buffer_view given, const class shape& as) const {
  // It refers to the caller's elements, which live until the await ends, and only reads.
  const tensor seen(
      as, buffer_view(const_cast<void*>(given.data()), given.count(), given.type()),
      nullptr);
  return put(seen);
}

task<void> mesh::load(std::string file, source_position where) const {
  return plugin_book::load(request_on(core_, workers_).core, workers_, std::move(file),
                           where);
}

task<void> mesh::upload(std::string file, source_position where) const {
  return plugin_book::upload(request_on(core_, workers_).core, workers_, std::move(file),
                             where);
}

// --- sessions ------------------------------------------------------------

void detail::check_session(int workers, int per_host, const session_options& limits) {
  if (workers < 1) throw std::invalid_argument("session: it has no workers");
  if (static_cast<std::size_t>(workers) > command_wire::most_members) {
    throw std::invalid_argument("session: " + std::to_string(workers) +
                                " workers: it can have 4096");
  }
  if (limits.window == 0)
    throw std::invalid_argument("session: a window of no commands lets none through");
  static_cast<void>(device_list_of(limits, per_host));
}

namespace {

/// Refuses a handle without a session, like one that was moved from.
const std::shared_ptr<session_core>& existing_session(
    const std::shared_ptr<session_core>& core) {
  if (!core) throw std::invalid_argument("a handle without a session");
  return core;
}

}  // namespace

session::session(std::shared_ptr<session_core> core)
    : manyworlds::mesh(core, core->all_workers()) {}

session& session::operator=(session&& other) noexcept {
  session taken(std::move(other));
  manyworlds::mesh& mine = *this;
  manyworlds::mesh& theirs = taken;
  std::swap(mine, theirs);
  return *this;
}

session::~session() {
  if (core()) core()->abandon();
}

task<session> detail::start_session(runtime& rt, std::unique_ptr<worker_source> source,
                                    int workers, session_options limits) {
  auto core = std::make_shared<session_core>(rt, std::move(source), workers, limits);
  // From here on its end is the session's.
  session made = access::make<session>(core);
  co_await session_core::begin(core);
  co_return made;
}

task<session> session::start(runtime& rt, threads how) {
  check_session(how.workers(), how.workers(), how.limits());
  auto source = std::make_unique<thread_source>(rt, how.functions(), how.limits());
  co_return co_await start_session(rt, std::move(source), how.workers(), how.limits());
}

task<session> session::start(runtime& rt, processes how) {
  check_session(how.workers, how.workers, how.limits);
  if (how.how == nullptr && how.program.empty())
    throw std::invalid_argument("session: its workers have no program");
  process_options program =
      how.how != nullptr ? *how.how : process_options(how.program.str());
  std::unique_ptr<worker_source> source;
  if (how.worker0) {
    source = std::make_unique<mixed_source>(rt, std::move(program),
                                            how.worker0->functions(), how.limits);
  } else {
    source = std::make_unique<process_source>(rt, std::move(program), how.limits);
  }
  co_return co_await start_session(rt, std::move(source), how.workers, how.limits);
}

task<session> session::start(runtime& rt, nodes how) {
  if (how.count < 1 || how.workers_per_node < 1)
    throw std::invalid_argument("session: it has no workers");
  constexpr int most = static_cast<int>(command_wire::most_members);
  const int workers = how.count > most || how.workers_per_node > most
                          ? most + 1
                          : how.count * how.workers_per_node;
  check_session(workers, how.workers_per_node, how.limits);
  auto source = std::make_unique<node_source>(rt, how);
  co_return co_await start_session(rt, std::move(source), workers, how.limits);
}

manyworlds::mesh session::mesh(worker_list workers) const {
  existing_session(core())->check_workers(workers.ids());
  return access::make<manyworlds::mesh>(core(), workers.ids());
}

std::vector<manyworlds::mesh> session::split(int parts) const {
  const int all = static_cast<int>(workers().size());
  if (parts < 1 || all % parts != 0) {
    throw std::invalid_argument("session: " + std::to_string(all) +
                                " workers cannot be split into " + std::to_string(parts) +
                                " parts");
  }
  std::vector<manyworlds::mesh> meshes;
  for (int first = 0; first < all; first += all / parts) {
    std::vector<int> part;
    for (int id = first; id < first + all / parts; ++id) part.push_back(id);
    meshes.push_back(mesh(std::move(part)));
  }
  return meshes;
}

manyworlds::mesh session::shrink() const {
  std::vector<int> there;
  for (const session_worker& each : describe()) {
    if (each.state == worker_state::ready) there.push_back(each.id);
  }
  return mesh(std::move(there));
}

task<void> session::respawn(int worker) const {
  existing_session(core())->check_workers(std::span(&worker, 1));
  return worker_replacer::replace(core(), worker);
}

session_events session::events(std::size_t capacity) const {
  return session_events(existing_session(core())->events().subscribe(capacity));
}

void session::alert() const { existing_session(core())->alert(); }

std::vector<session_worker> session::describe() const {
  return existing_session(core())->describe();
}

session_worker session::describe(int worker) const {
  existing_session(core())->check_workers(std::span(&worker, 1));
  return core()->describe()[static_cast<std::size_t>(worker)];
}

task<void> session::close() { return session_core::close(existing_session(core())); }

}  // namespace manyworlds::inline v0
