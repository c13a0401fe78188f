#include "launch/worker_report.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <string_view>
#include <utility>

namespace manyworlds::inline v0::detail {

namespace {

constexpr auto last_cause_of_report = cause::wrong_version;
constexpr auto last_operation_of_report = operation_kind::call;
constexpr auto last_event_of_report = world_event_kind::closed;

void put_name(wire_writer& to, std::string_view text,
              std::size_t longest = longest_report_name) {
  to.put(text.substr(0, longest));
}

std::string name_in(wire_reader& from, std::size_t longest = longest_report_name) {
  return std::string(from.get_text(longest));
}

duration duration_in(wire_reader& from) {
  const auto count = from.get<std::int64_t>();
  if (count < 0) throw wire_error("a negative time");
  return duration(count);
}

bool flag_in(wire_reader& from) {
  const auto value = from.get<std::uint8_t>();
  if (value > 1) throw wire_error("a flag that is neither 0 nor 1");
  return value == 1;
}

int number_in(wire_reader& from) {
  const auto value = from.get<std::int32_t>();
  if (value < 0) throw wire_error("a negative number");
  return value;
}

void put(wire_writer& to, const worker_hello& r) {
  to.put(std::int32_t{r.rank}).put(std::int32_t{r.incarnation});
}
void read(wire_reader& from, worker_hello& r) {
  r.rank = number_in(from);
  r.incarnation = number_in(from);
}

void put(wire_writer& to, const worker_wait& w) {
  to.put(w.kind);
  put_name(to, w.world);
  to.put(w.epoch).put(w.peer_pid);
  put_name(to, w.peer_host);
  to.put(std::int64_t{w.age.count()});
}
void read(wire_reader& from, worker_wait& w) {
  w.kind = from.get_enum(last_operation_of_report);
  w.world = name_in(from);
  w.epoch = from.get<std::uint64_t>();
  w.peer_pid = from.get<std::int64_t>();
  w.peer_host = name_in(from);
  w.age = duration_in(from);
}

void put(wire_writer& to, const worker_beat& r) {
  to.put(r.turns);
  to.put(std::uint8_t{r.waits.has_value()});
  if (r.waits) put(to, *r.waits);
}
void read(wire_reader& from, worker_beat& r) {
  r.turns = from.get<std::uint64_t>();
  if (flag_in(from)) read(from, r.waits.emplace());
}

void put(wire_writer& to, const worker_progress& r) { to.put(r.step); }
void read(wire_reader& from, worker_progress& r) { r.step = from.get<std::uint64_t>(); }

void put(wire_writer& to, const world_news& r) {
  to.put(r.kind);
  put_name(to, r.world);
  to.put(r.epoch).put(r.why).put(std::int32_t{r.size}).put(r.pid);
  put_name(to, r.host);
}
void read(wire_reader& from, world_news& r) {
  r.kind = from.get_enum(last_event_of_report);
  r.world = name_in(from);
  r.epoch = from.get<std::uint64_t>();
  r.why = from.get_enum(last_cause_of_report);
  r.size = number_in(from);
  r.pid = from.get<std::int64_t>();
  r.host = name_in(from);
}

void put(wire_writer& to, const deadline_begun& r) {
  to.put(r.number).put(std::int64_t{r.left.count()});
  put_name(to, r.what);
}
void read(wire_reader& from, deadline_begun& r) {
  r.number = from.get<std::uint64_t>();
  r.left = duration_in(from);
  r.what = name_in(from);
}

void put(wire_writer& to, const deadline_ended& r) { to.put(r.number); }
void read(wire_reader& from, deadline_ended& r) { r.number = from.get<std::uint64_t>(); }

void put(wire_writer& to, const reported_event& r) {
  put_name(to, r.name);
  to.put(static_cast<std::uint8_t>(std::min(r.fields.size(), most_report_fields)));
  std::size_t count = 0;
  for (const auto& [name, value] : r.fields) {
    if (count++ == most_report_fields) break;
    put_name(to, name);
    put_name(to, value, longest_report_value);
  }
}
void read(wire_reader& from, reported_event& r) {
  r.name = name_in(from);
  const std::size_t count = from.get<std::uint8_t>();
  if (count > most_report_fields) throw wire_error("an event with too many fields");
  for (std::size_t i = 0; i < count; ++i) {
    std::string name = name_in(from);
    r.fields.insert_or_assign(std::move(name), name_in(from, longest_report_value));
  }
}

void put(wire_writer& to, const reported_metric& r) {
  put_name(to, r.name);
  to.put(std::bit_cast<std::uint64_t>(r.value));
}
void read(wire_reader& from, reported_metric& r) {
  r.name = name_in(from);
  r.value = std::bit_cast<double>(from.get<std::uint64_t>());
}

void put(wire_writer& to, const reported_span& r) {
  put_name(to, r.name);
  to.put(std::int64_t{r.took.count()});
}
void read(wire_reader& from, reported_span& r) {
  r.name = name_in(from);
  r.took = duration_in(from);
}

void put(wire_writer&, const worker_rest&) {}
void read(wire_reader&, worker_rest&) {}

void put(wire_writer&, const dump_written&) {}
void read(wire_reader&, dump_written&) {}

void put(wire_writer&, const state_again&) {}
void read(wire_reader&, state_again&) {}

void put(wire_writer& to, const restart_request& r) {
  put_name(to, r.why, longest_report_value);
}
void read(wire_reader& from, restart_request& r) {
  r.why = name_in(from, longest_report_value);
}

/// Makes the alternative of that number.
template <std::size_t... Numbers>
worker_report report_of_kind(std::size_t kind, std::index_sequence<Numbers...>) {
  worker_report made;
  const bool is_one =
      ((kind == Numbers ? (made.emplace<Numbers>(), true) : false) || ...);
  if (!is_one) throw wire_error("a report of an unknown kind");
  return made;
}

}  // namespace

void note_news(const world_news& news, std::size_t most, known_worlds& worlds,
               known_suspects& suspects) {
  const known_suspects::key_type about(news.world, news.pid, news.host);
  switch (news.kind) {
    case world_event_kind::suspect:
      if (suspects.size() < most) suspects.insert_or_assign(about, news);
      return;
    case world_event_kind::recovered:
      suspects.erase(about);
      return;
    case world_event_kind::broken:
    case world_event_kind::formed:
    case world_event_kind::closed:
      break;
  }
  // Silence stays an accusation until the world forms again.
  const bool is_by_silence =
      news.kind == world_event_kind::broken && news.why == cause::silent_peer;
  if (!is_by_silence)
    std::erase_if(suspects, [&](const auto& s) { return s.second.world == news.world; });
  if (news.kind == world_event_kind::closed) {
    worlds.erase(news.world);
  } else if (worlds.size() < most || worlds.contains(news.world)) {
    worlds.insert_or_assign(news.world, news);
  }
}

bytes encoded(const worker_report& report) {
  wire_writer to;
  to.put(static_cast<std::uint8_t>(report.index()));
  std::visit([&](const auto& r) { put(to, r); }, report);
  return to.take();
}

worker_report decoded_report(std::span<const std::byte> message) {
  if (message.size() > longest_report) throw wire_error("a report that is too long");
  wire_reader from(message);
  worker_report report =
      report_of_kind(from.get<std::uint8_t>(),
                     std::make_index_sequence<std::variant_size_v<worker_report>>());
  std::visit([&](auto& r) { read(from, r); }, report);
  from.expect_end();
  return report;
}

}  // namespace manyworlds::inline v0::detail
