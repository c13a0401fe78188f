#include "host/fan_out_send.hpp"

#include <algorithm>
#include <utility>

#include "host/host_backend.hpp"

namespace manyworlds::inline v0::detail::host {

fan_out_send::part::part(fan_out_send& of, rank_t target) noexcept
    : operation(operation_kind::send,
                [](operation& op, operation_end how) noexcept {
                  auto& self = static_cast<part&>(op);
                  self.owner.note_end(self, how);
                }),
      owner(of) {
  const operation& whole = of.whole_;
  peer = target;
  on = whole.on;
  delivered = whole.delivered;
  user = whole.user;
  head = whole.head;
  head_bytes = whole.head_bytes;
  gives_payload = whole.gives_payload;
  source = whole.source;
  started = whole.started;
  where = whole.where;
}

void fan_out_send::start() {
  MW_ASSERT(left_ == 0 && !is_busy_ && !parts_.empty(),
            "the parts of a send are started once");
  set_stage(whole_, stage::fanned_out, this);
  left_ = parts_.size();
  is_busy_ = true;
  // A part that cannot be started breaks the world, which ends nothing within this step.
  for (part& p : parts_) {
    p.is_under_way = true;
    by_.start_part(p);
  }
  is_busy_ = false;
  if (left_ == 0) end_whole();
}

bool fan_out_send::withdraw() {
  MW_ASSERT(left_ > 0, "a send that is given up has parts under way");
  is_busy_ = true;
  for (part& p : parts_) {
    if (!p.is_under_way || !by_.withdraw(p)) continue;
    p.is_under_way = false;
    was_withdrawn_ = true;
    --left_;
  }
  is_busy_ = false;
  if (left_ > 0) return false;
  if (!was_withdrawn_ || whole_.failed_with != cause::none) {
    end_whole();
    return false;
  }
  set_stage(whole_, stage::none, nullptr);
  remove();
  return true;
}

void fan_out_send::note_end(part& p, operation_end how) noexcept {
  MW_ASSERT(p.is_under_way && left_ > 0, "each part ends once (law 1)");
  p.is_under_way = false;
  --left_;
  if (how == operation_end::failed && whole_.failed_with == cause::none) {
    whole_.failed_with = p.failed_with;
    whole_.failure_detail = std::move(p.failure_detail);
    whole_.info.source = p.peer;
  }
  was_withdrawn_ = was_withdrawn_ || how == operation_end::withdrawn;
  whole_.bytes_moved = std::max<std::uint64_t>(whole_.bytes_moved, p.bytes_moved);
  if (left_ == 0 && !is_busy_) end_whole();
}

// A member that failed is told even if the send was given up meanwhile.
void fan_out_send::end_whole() noexcept {
  MW_ASSERT(left_ == 0, "a send ends after its last part (law 4)");
  operation& whole = whole_;
  const operation_end how = whole.failed_with != cause::none ? operation_end::failed
                            : was_withdrawn_                 ? operation_end::withdrawn
                                                             : operation_end::done;
  set_stage(whole, stage::none, nullptr);
  remove();
  whole.end(how);
}

void fan_out_send::remove() noexcept {
  all_.remove_if([this](const fan_out_send& each) { return &each == this; });
}

}  // namespace manyworlds::inline v0::detail::host
