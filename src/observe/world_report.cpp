#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/world/world.hpp"
#include "observe/report.hpp"
#include "world/runtime_core.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

operation_report report_on(const operation& op, time_point now) {
  operation_report report;
  report.kind = op.kind;
  report.peer = op.peer;
  report.lane = op.on.number();
  report.bytes_moved = op.bytes_moved;
  report.bytes_wanted =
      op.kind == operation_kind::send ? op.source.total_bytes() : op.target.total_bytes();
  report.bytes_wanted += op.head_bytes;
  report.begun = op.begun;
  report.waits_for = name_of(static_cast<send_obstacle>(op.waits_for));
  report.age = now - op.started;
  report.file = op.where.file_name();
  report.line = op.where.line();
  return report;
}

}  // namespace

world_report world_core::report(time_point now) const {
  world_report report;
  report.name = options_.name;
  report.instance = instance_;
  report.rank = options_.rank;
  report.size = options_.size;
  report.state = name_of(state());
  report.first_cause = first_failure();
  report.history = tally_.read(now);
  // Read the epoch first: it publishes the view and the links.
  report.epoch = epoch();
  if (report.epoch != 0) {
    for (rank_t r = 0; r < view().size(); ++r) {
      member_report m;
      m.rank = r;
      m.identity = view().member(r).identity;
      m.address = view().member(r).endpoint.text();
      m.is_self = r == options_.rank;
      m.is_suspect = members_.is_suspect(r);
      MW_ASSERT(static_cast<std::size_t>(r) < members_.links().size(),
                "each member has a place for its link");
      const auto& l = members_.links()[static_cast<std::size_t>(r)];
      if (l && !m.is_self) {
        m.silence = now - l->last_heard();
        m.transport = members_.is_over_memory(r) ? "shm" : "tcp";
      }
      report.members.push_back(std::move(m));
    }
  }
  const std::lock_guard lock(pending_.history().mutex());
  for (const operation* op = pending_.first(); op; op = op->next_pending) {
    report.pending.push_back(report_on(*op, now));
  }
  return report;
}

transfer_report world_core::report_transfers() const {
  transfer_report report;
  if (!backend_) return report;
  report.transport = backend_->transport();
  report.lanes = backend_->lanes();
  report.collective = backend_->collective();
  report.counters = backend_->counters();
  if (const device_control* const gpu = backend_->device()) report.device = gpu->status();
  return report;
}

}  // namespace manyworlds::inline v0::detail
