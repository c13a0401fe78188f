#include "store/store_gate.hpp"

#include <utility>

namespace manyworlds::inline v0::detail {

store_gate::store_gate(store* behind)
    : beside_(behind ? behind->users() : nullptr), behind_(behind) {
  if (beside_) beside_->add(*this);
}

store_gate::~store_gate() {
  if (beside_) beside_->remove(*this);
}

void store_gate::store_ends(bool answers) noexcept {
  if (!answers) set_parting_request(std::nullopt);
  shut();
}

std::string store_gate::address() const {
  const std::lock_guard lock(mutex_);
  return behind_ ? behind_->address() : "a store that the world no longer uses";
}

std::string store_gate::trouble() const {
  const std::lock_guard lock(mutex_);
  return behind_ ? behind_->trouble() : std::string();
}

task<store_reply> store_gate::perform(store_request request) {
  // Held while the store makes the task: after `shut` the store may be destroyed.
  const std::lock_guard lock(mutex_);
  if (behind_) return behind_->perform(std::move(request));
  throw store_error(store_failure(
      store_error_kind::refused, "its store", request.operation, std::move(request.keys),
      duration::zero(), "the world was dropped, or its store destroyed"));
}

void store_gate::set_parting_request(std::optional<store_request> request) {
  const std::lock_guard lock(mutex_);
  request_ = std::move(request);
}

void store_gate::shut() noexcept {
  const std::lock_guard lock(mutex_);
  store* const behind = std::exchange(behind_, nullptr);
  if (!behind || !request_) return;
  try {
    parting_.emplace(behind->perform(std::move(*request_)));
  } catch (const std::exception&) {
    // No caller is left to be told. Members that meet the record find it stale.
    parting_.reset();
  }
}

bool store_gate::is_shut() const {
  const std::lock_guard lock(mutex_);
  return behind_ == nullptr;
}

task<void> store_gate::part() {
  std::optional<task<store_reply>> parting;
  {
    const std::lock_guard lock(mutex_);
    parting = std::exchange(parting_, std::nullopt);
  }
  if (parting) (void)co_await std::move(*parting);
}

}  // namespace manyworlds::inline v0::detail
