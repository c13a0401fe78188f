#include "link/neighbourhood.hpp"

#include "link/death_watch.hpp"
#include "link/neighbour.hpp"
#include "link/same_host.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {
constexpr std::size_t most_told = 32;
}  // namespace

neighbourhood::neighbourhood(endpoint& owner, reactor& service, environment& env,
                             const endpoint_options& options)
    : owner_(owner),
      service_(service),
      simulated_(env.host()),
      pools_(options.pools),
      mover_(options.mover) {
  const incarnation& self = owner.self().id;
  auto& events = static_cast<same_host_events&>(*this);
  if (simulated_) {
    deaths_ = simulated_->make_death_notices(service);
    if (!options.shared_memory) return;
    place_ = simulated_->make_meeting_place(service, self, events, options.read_peers);
  } else {
    deaths_ = std::make_unique<death_watch>(
        service, options.death_thread,
        [this](std::string line) { remark(std::move(line)); });
    if (!options.shared_memory) return;
    place_ = std::make_unique<same_host>(service, env, self, events, options.read_peers);
  }
}

neighbourhood::~neighbourhood() = default;

std::string neighbourhood::objection() const {
  if (!place_) return turned_off;
  return owner_.user() ? "" : "no reactor there would read it";
}

std::string neighbourhood::listening_objection() const {
  const std::string all = objection();
  return all.empty() ? place_->refusal() : all;
}

void neighbourhood::begin() {
  if (!place_ || simulated_) return;
  MW_ASSERT(!words_, "the words are held from one begin to its end");
  words_.emplace();
  if (!words_->is_installed()) {
    remark(
        "the kernel takes no list of robust futexes here: peers notice the death of this "
        "process by its sockets and its process handle");
  }
  place_->hold_with(*words_);
  if (!place_->refusal().empty()) {
    owner_.remark(
        log_level::warning,
        place_->refusal() +
            ": peers that dial this process share no memory with it, and use tcp");
  }
}

void neighbourhood::end() noexcept { words_.reset(); }

task<void> neighbourhood::run() {
  if (place_) co_await place_->run();
}

const invitation* neighbourhood::invited(const incarnation& from) {
  link* const l = owner_.link_to(from);
  return l ? l->on_host().expected() : nullptr;
}

void neighbourhood::visited(const incarnation& from, shared_parts parts) {
  if (link* const l = owner_.link_to(from)) l->on_host().receive(std::move(parts));
}

void neighbourhood::remark_refusal(const std::string& reason, std::string line) {
  // Reasons of peers may differ every time, so their number is limited.
  const bool is_news = told_.size() < most_told && told_.insert(reason).second;
  owner_.remark(is_news ? log_level::warning : log_level::debug, std::move(line));
}

void neighbourhood::remark(std::string line) noexcept {
  owner_.remark(log_level::info, std::move(line));
}

}  // namespace manyworlds::inline v0::detail::shm
