#include "manyworlds/detail/call_deadline.hpp"

#include <optional>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail {

/// Posts itself to the home when the token is triggered, and lives until that post
/// arrives.
class call_deadline::stop_notice final
    : public std::enable_shared_from_this<stop_notice> {
 public:
  stop_notice(call_deadline& owner, executor& home) noexcept
      : owner_(&owner), home_(home) {}

  void begin(std::stop_token token) {
    MW_ASSERT(!callback_, "a notice watches one token");
    callback_.emplace(std::move(token), poster{this});
  }
  /// Forgets the owner. Waits for a callback that runs on another thread. Thread: the
  /// home's.
  void forget() noexcept {
    owner_ = nullptr;
    callback_.reset();
  }

 private:
  struct poster {
    stop_notice* self;
    void operator()() const noexcept { self->post(); }
  };

  void post() noexcept {
    MW_ASSERT(!keeps_, "a token is triggered once");
    keeps_ = shared_from_this();
    if (!home_.try_execute(arrived_)) keeps_.reset();
  }
  void arrived() noexcept {
    const auto alive = std::move(keeps_);
    MW_ASSERT(alive, "a notice arrives only after it was posted");
    if (owner_) owner_->tell(cause::cancelled);
  }

  call_deadline* owner_;
  executor& home_;
  member_work<&stop_notice::arrived> arrived_{*this};
  std::shared_ptr<stop_notice> keeps_;
  std::optional<std::stop_callback<poster>> callback_;
};

void call_deadline::begin(executor& home, time_point deadline, std::stop_token token) {
  MW_ASSERT(!is_armed() && !notice_, "a deadline begins again only after its end");
  home_ = &home;
  if (deadline != time_point::max()) home.arm(*this, deadline);
  if (!token.stop_possible()) return;
  notice_ = std::make_shared<stop_notice>(*this, home);
  notice_->begin(std::move(token));
}

void call_deadline::end() noexcept {
  if (is_armed()) home_->timers().disarm(*this);
  if (const auto notice = std::move(notice_)) notice->forget();
}

}  // namespace manyworlds::inline v0::detail
