#include "launch/job_notice.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "launch/notice_board.hpp"
#include "launch/variable_reader.hpp"
#include "link/wire.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::uint32_t most_told_failures = 16;
constexpr std::size_t longest_told_text = 1024;
constexpr std::size_t most_told_of_hangs = 32 * 1024;

/// Ranks fit beside the failures.
static_assert(2 * most_told_failures * (3 * longest_told_text + 64) +
                  3 * 12 * most_told_ranks + 4 * longest_told_text + 64 <
              longest_notice);

std::string_view shortened(std::string_view text) {
  return text.substr(0, longest_told_text);
}

void put_failures(wire_writer& out, const std::vector<worker_failure>& all) {
  const auto told = std::min<std::size_t>(all.size(), most_told_failures);
  out.put(static_cast<std::uint32_t>(told));
  for (std::size_t i = 0; i < told; ++i) {
    const worker_failure& f = all[i];
    out.put(static_cast<std::int32_t>(f.rank));
    out.put(static_cast<std::int32_t>(f.local_rank));
    out.put(f.reason.kind).put(static_cast<std::int32_t>(f.reason.code));
    out.put(static_cast<std::int32_t>(f.reason.signal));
    out.put(static_cast<std::int64_t>(f.reason.pid)).put(f.time);
    out.put(shortened(f.host)).put(shortened(f.error_file));
    out.put(shortened(f.traceback));
  }
}

std::vector<worker_failure> get_failures(wire_reader& in) {
  const auto count = in.get<std::uint32_t>();
  if (count > most_told_failures) throw wire_error("more failures than any node tells");
  std::vector<worker_failure> all(count);
  for (worker_failure& f : all) {
    f.rank = in.get<std::int32_t>();
    f.local_rank = in.get<std::int32_t>();
    f.reason.kind = in.get_enum(exit_kind::reaped_elsewhere);
    f.reason.code = in.get<std::int32_t>();
    f.reason.signal = in.get<std::int32_t>();
    f.reason.pid = static_cast<pid_t>(in.get<std::int64_t>());
    f.time = in.get<std::int64_t>();
    f.host = in.get_text(longest_told_text);
    f.error_file = in.get_text(longest_told_text);
    f.traceback = in.get_text(longest_told_text);
  }
  return all;
}

void put_incarnations(wire_writer& out,
                      const std::map<std::int32_t, incarnation_t>& all) {
  // The first ones need not be told.
  const auto is_told = [](const auto& each) { return each.second > 1; };
  out.put(static_cast<std::uint32_t>(std::count_if(all.begin(), all.end(), is_told)));
  for (const auto& each : all) {
    if (is_told(each)) out.put(each.first).put(each.second);
  }
}

std::map<std::int32_t, incarnation_t> get_incarnations(wire_reader& in) {
  const auto count = in.get<std::uint32_t>();
  if (count > most_told_ranks) throw wire_error("more ranks than any node has");
  std::map<std::int32_t, incarnation_t> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto rank = in.get<std::int32_t>();
    all[rank] = in.get<incarnation_t>();
  }
  return all;
}

void put_orders(wire_writer& out, const job_orders& o) {
  out.put(o.attempt).put(shortened(o.store)).put(o.restarts);
  out.put(o.recent_restarts).put(o.verdict);
  put_incarnations(out, o.granted);
  out.put(static_cast<std::uint32_t>(o.denied.size()));
  for (const std::int32_t rank : o.denied) out.put(rank);
  put_failures(out, o.failures);
  out.put(shortened(o.cause));
}

job_orders get_orders(wire_reader& in) {
  job_orders o;
  o.attempt = in.get<std::uint64_t>();
  o.store = in.get_text(longest_told_text);
  if (!o.store.empty() && (host_of(o.store).empty() || port_of(o.store).value_or(0) == 0))
    throw wire_error("a store that is no endpoint");
  o.restarts = in.get<std::uint64_t>();
  o.recent_restarts = in.get<std::uint64_t>();
  o.verdict = in.get_enum(job_verdict::failure);
  o.granted = get_incarnations(in);
  const auto denied = in.get<std::uint32_t>();
  if (denied > most_told_ranks) throw wire_error("more ranks than any node has");
  for (std::uint32_t i = 0; i < denied; ++i) o.denied.insert(in.get<std::int32_t>());
  o.failures = get_failures(in);
  o.cause = in.get_text(longest_told_text);
  return o;
}

/// What is left of a notice for a list behind its count.
std::size_t room_in(const wire_writer& out) {
  constexpr std::size_t counts = 2 * sizeof(std::uint32_t);
  return std::min(most_told_of_hangs, longest_notice - counts - out.view().size());
}

bool flag_of(wire_reader& in) { return in.get<std::uint8_t>() != 0; }

}  // namespace

std::string job_notice::encode() const {
  const node_report& r = report;
  wire_writer out;
  out.put(r.attempt).put(r.first_rank).put(r.world_size).put(std::string_view(r.leader));
  out.put(r.restarts).put(r.recent_restarts).put(r.before);
  out.put(std::uint8_t{r.has_ended}).put(std::uint8_t{r.is_done});
  out.put(std::uint8_t{r.is_ending});
  out.put(std::uint8_t{r.drains}).put(std::uint8_t{r.leaves});
  put_failures(out, r.failures);
  put_incarnations(out, r.incarnations);
  out.put(std::uint8_t{orders.has_value()});
  if (orders) put_orders(out, *orders);
  // Last: they take what is left.
  put_verdicts(out, r.verdicts, room_in(out));
  put_testimonies(out, r.testimonies, room_in(out));
  const bytes all = out.take();
  std::string text(reinterpret_cast<const char*>(all.data()), all.size());
  MW_ASSERT(text.size() <= longest_notice, "a notice fits");
  return text;
}

job_notice job_notice::decode(std::string_view text) {
  wire_reader in(std::as_bytes(std::span(text)));
  job_notice n;
  node_report& r = n.report;
  r.attempt = in.get<std::uint64_t>();
  r.first_rank = in.get<std::int32_t>();
  r.world_size = in.get<std::int32_t>();
  r.leader = in.get_text(longest_told_text);
  r.restarts = in.get<std::uint64_t>();
  r.recent_restarts = in.get<std::uint64_t>();
  r.before = in.get_enum(round_end::left);
  r.has_ended = flag_of(in);
  r.is_done = flag_of(in);
  r.is_ending = flag_of(in);
  r.drains = flag_of(in);
  r.leaves = flag_of(in);
  r.failures = get_failures(in);
  r.incarnations = get_incarnations(in);
  if (flag_of(in)) n.orders = get_orders(in);
  r.verdicts = get_verdicts(in);
  r.testimonies = get_testimonies(in);
  return n;
}

}  // namespace manyworlds::inline v0::detail
