#include "manyworlds/testing/simulated_process.hpp"

#include <utility>

#include "testing/simulated_engine.hpp"
#include "testing/simulated_host.hpp"
#include "testing/simulated_kernel.hpp"
#include "testing/simulated_programs.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

simulated_process::simulated_process(simulation& owner, simulated_network& net,
                                     simulated_clockwork& clockwork, std::size_t index,
                                     std::size_t host, std::string name)
    : simulation_(owner),
      network_(net),
      clockwork_(clockwork),
      index_(index),
      host_(host),
      name_(std::move(name)),
      random_(clockwork.random.fork()),
      sockets_(std::make_unique<simulated_sockets>(*this)),
      kernel_(std::make_unique<simulated_host>(*this)),
      programs_(std::make_unique<simulated_programs>(owner, *this, clockwork)) {}

simulated_process::~simulated_process() = default;

engine_choice simulated_process::make_engine(engine_kind) {
  return {std::make_unique<simulated_engine>(*this, clockwork_), {}};
}

process_identity simulated_process::identity() const {
  constexpr std::int64_t first_pid = 100;
  return {first_pid + static_cast<std::int64_t>(index_),
          decltype(process_identity::host)::clipped("host" + std::to_string(host_))};
}

detail::shm::host_kernel* simulated_process::host() noexcept {
  return clockwork_.options.shared_memory ? kernel_.get() : nullptr;
}

process_host* simulated_process::processes() noexcept { return programs_.get(); }

void simulated_process::add_program(std::string name, simulated_body body) {
  programs_->add(std::move(name), std::move(body));
}

void simulated_process::fail_start(const std::string& name, start_step step, int error) {
  programs_->fail_next(name, {step, error, {}});
}

bool simulated_process::signal_program(pid_t pid, int number) {
  simulated_child* const found = programs_->find(pid);
  if (found) found->signal(number);
  return found != nullptr;
}

bool simulated_process::kill_for_memory(pid_t pid) {
  simulated_child* const found = programs_->find(pid);
  if (found) found->kill(true);
  return found != nullptr;
}

bool simulated_process::has_programs() const noexcept { return programs_->has_any(); }

std::vector<pid_t> simulated_process::programs() const { return programs_->running(); }

void simulated_process::spend(duration time) noexcept { clockwork_.now += time; }

void simulated_process::attach(reactor& r) { simulation_.attach(*this, r); }
void simulated_process::detach(reactor& r) noexcept { simulation_.detach(r); }

socket_address simulated_process::address(std::uint16_t port) const {
  return simulated_network::address_of(host_, port);
}

simulated_resident* simulated_kernel::find(const simulated_process& p,
                                           std::string_view name) noexcept {
  return p.simulation_.find_resident(p.host_, name);
}

std::pair<socket_handle, socket_handle> simulated_kernel::make_pair(
    simulated_process& p, simulated_process& other) {
  return p.network_.make_pair(p, other);
}

network& simulated_kernel::sockets(simulated_process& p) noexcept { return *p.sockets_; }

}  // namespace manyworlds::inline v0
