#include "world/runtime_core.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "io/system_environment.hpp"
#include "link/copy_thread.hpp"
#include "manyworlds/coro/sleep.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

socket_address address_from(std::string_view text, std::string_view what) {
  const auto parsed = socket_address::parse(text);
  if (!parsed) {
    throw std::invalid_argument(
        fmt::format("{} \"{}\" is no numeric address with a port", what, text));
  }
  return *parsed;
}

endpoint_options endpoint_options_from(const runtime_options& o, environment& env,
                                       std::shared_ptr<pool_registry> pools) {
  endpoint_options e;
  e.listen = address_from(o.listen, "the listening address");
  if (!o.advertise.empty())
    e.advertise = address_from(o.advertise, "the advertised address");
  e.secret = o.secret;
  e.insecure = o.insecure;
  if (o.heartbeat < 1ms)
    throw std::invalid_argument("the heartbeat is shorter than 1 ms");
  e.heartbeat = o.heartbeat;
  e.shared_memory = o.shared_memory && (env.starts_threads() || env.host() != nullptr);
  e.read_peers = o.read_peers;
  e.pools = std::move(pools);
  if (o.mover && env.starts_threads() && has_cpus_for_helpers()) {
    e.copy_thread = std::make_shared<shm::copy_thread>(o.thread_name.str() + "-cpy");
  }
  e.death_thread = o.thread_name.str() + "-die";
  return e;
}

}  // namespace

runtime_core::runtime_core(const runtime_options& options) : options_(options) {
  if (!options.environment) own_env_ = std::make_unique<system_environment>();
  env_ = options.environment ? options.environment : own_env_.get();

  engine_choice chosen = env_->make_engine(options.engine);
  if (!chosen.warning.empty()) log(log_level::warning, chosen.warning);
  reactor_options user_options;
  user_options.spin = options.spin >= duration::zero() ? options.spin : default_spin();
  user_ = std::make_unique<reactor>(std::move(chosen.engine), user_options);

  // Nothing on the service thread is worth a core. Between the operations of a store,
  // however, a sleep would take as long as an operation does.
  reactor_options service_options;
  service_options.spin = duration::zero();
  if (has_cpus_for_helpers()) service_options.attention = user_options.spin;
  // Always epoll, also if the user's reactor uses a ring: a kernel worker closes the
  // sockets of a dead process's ring 7 ms after its death, under load a second, and the
  // peers notice no earlier.
  service_ = std::make_unique<reactor>(env_->make_engine(engine_kind::epoll).engine,
                                       service_options);

  router_ = std::make_unique<world_router>(*this);
  endpoint_ = std::make_unique<endpoint>(
      *service_, *env_, endpoint_options_from(options, *env_, pools_), *router_);
  endpoint_->serve(*user_, options.spin < duration::zero());
  reporter_ = std::make_unique<reporter>(*this);
  env_->attach(*user_);
  env_->attach(*service_);

  void* page =
      mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) {
    fork_mark_ = static_cast<volatile unsigned char*>(page);
    // Kernels before 4.14 refuse; a forked child is not recognised there.
    if (madvise(page, 1, MADV_WIPEONFORK) == 0) *fork_mark_ = 1;
  }
}

runtime_devices& runtime_core::devices() {
  const std::lock_guard lock(devices_mutex_);
  if (!devices_) devices_ = runtime_devices::make();
  return *devices_;
}

void runtime_core::end_devices() noexcept {
  std::unique_ptr<runtime_devices> ended;
  const std::lock_guard lock(devices_mutex_);
  ended.swap(devices_);
}

runtime_core::~runtime_core() {
  env_->detach(*service_);
  env_->detach(*user_);
  if (fork_mark_) munmap(const_cast<unsigned char*>(fork_mark_), 1);
}

task<void> runtime_core::serve() { co_await endpoint_->run(); }

void runtime_core::end_service(duration patience) noexcept {
  if (std::exchange(ends_service_, true)) return;
  goodbye_patience_ = patience;
  service_->post(goodbye_);
}

void runtime_core::say_goodbye() noexcept {
  peers().spawn(peers().say_goodbye(goodbye_patience_));
}

void runtime_core::log(log_level level, std::string_view line) const noexcept {
  if (!logs(level)) return;
  if (options_.log) {
    options_.log->write(level, line);
  } else {
    stderr_log().write(level, line);
  }
}

bool runtime_core::logs(log_level level) const noexcept {
  return level >= options_.log_from;
}

std::uint64_t runtime_core::random_word() {
  std::uint64_t word = 0;
  const std::lock_guard lock(random_mutex_);
  env_->fill_random(std::as_writable_bytes(std::span(&word, 1)));
  return word;
}

duration runtime_core::jitter(duration most) {
  MW_ASSERT(most >= duration::zero(), "a jitter is a length of time");
  const auto range = static_cast<std::uint64_t>(most.count()) + 1;
  return duration(static_cast<duration::rep>(random_word() % range));
}

bool runtime_core::is_forked_child() const noexcept {
  return fork_mark_ && *fork_mark_ == 0;
}

}  // namespace manyworlds::inline v0::detail
