#include "world/control_message.hpp"

#include <fmt/format.h>

#include <cstring>

#include "link/wire_address.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_reason = 4096;
/// Smaller than the type allows, so that one more is possible; 0 means "never formed".
constexpr std::uint64_t largest_epoch = std::uint64_t{1} << 62;
static_assert(survivor_message::most_pending_votes <= 255, "their number is one byte");

template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;

enum class message_kind : std::uint8_t {
  propose,
  ready,
  commit,
  rollback,
  refuse,
  broken,
  survivor,
  status,
  successor
};
static_assert(std::variant_size_v<control_message> ==
                  static_cast<std::size_t>(message_kind::successor) + 1,
              "a message's kind is its place in the variant");

std::string as_text(std::span<const std::byte> raw) {
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}
std::span<const std::byte> as_raw(const std::string& text) {
  return std::as_bytes(std::span(text));
}

rank_t read_rank(wire_reader& in) {
  const auto rank = in.get<rank_t>();
  if (rank < no_rank || rank >= world_view::largest_size)
    throw wire_error("no such rank");
  return rank;
}

enum cause read_cause(wire_reader& in) { return in.get_enum(cause::wrong_version); }

std::string_view reason(const std::string& text) {
  return std::string_view(text).substr(0, longest_reason);
}
std::string read_reason(wire_reader& in) {
  return std::string(in.get_text(longest_reason));
}

void write(const std::vector<std::vector<rank_t>>& pending_votes, wire_writer& out) {
  out.put(static_cast<std::uint8_t>(pending_votes.size()));
  for (const auto& ranks : pending_votes) {
    out.put(static_cast<rank_t>(ranks.size()));
    for (const rank_t r : ranks) out.put(r);
  }
}

void write(const survivor_message& m, wire_writer& out) {
  out.put(m.name.view()).put(m.epoch).put(m.base).put(m.last_epoch);
  out.put(std::uint8_t{m.asks});
  write(m.pending_votes, out);
}

std::vector<rank_t> read_ranks(wire_reader& in) {
  const auto count = in.get<rank_t>();
  if (count < 1 || count > world_view::largest_size) {
    throw wire_error("no world has that many members");
  }
  std::vector<rank_t> ranks;
  for (rank_t i = 0; i < count; ++i) {
    const rank_t r = read_rank(in);
    if (r <= (ranks.empty() ? no_rank : ranks.back()))
      throw wire_error("ranks out of order");
    ranks.push_back(r);
  }
  return ranks;
}

std::vector<std::vector<rank_t>> read_votes(wire_reader& in) {
  const auto count = in.get<std::uint8_t>();
  if (count > survivor_message::most_pending_votes)
    throw wire_error("too many pending votes");
  std::vector<std::vector<rank_t>> pending_votes;
  for (std::uint8_t i = 0; i < count; ++i) pending_votes.push_back(read_ranks(in));
  return pending_votes;
}

void write(const world_view& v, wire_writer& out) {
  out.put(v.name.view()).put(v.epoch).put(v.id).put(v.size());
  for (const process_address& m : v.members) write(m, out);
}

world_view read_view(wire_reader& in) {
  world_view v;
  v.name = in.get_text(63);
  v.epoch = in.get<std::uint64_t>();
  if (v.epoch == 0 || v.epoch > largest_epoch) throw wire_error("no such epoch");
  v.id = in.get<std::uint64_t>();
  // A formation without a view has the id 0.
  if (v.id == 0) throw wire_error("a view without an id");
  const auto size = in.get<rank_t>();
  if (size < 1 || size > world_view::largest_size)
    throw wire_error("no world has that many members");
  for (rank_t r = 0; r < size; ++r) v.members.push_back(read_address(in));
  return v;
}

survivor_message read_survivor(wire_reader& in) {
  survivor_message m;
  m.name = in.get_text(63);
  m.epoch = in.get<std::uint64_t>();
  m.base = in.get<std::uint64_t>();
  m.last_epoch = in.get<std::uint64_t>();
  if (m.last_epoch >= largest_epoch) throw wire_error("no such epoch");
  m.asks = in.get<std::uint8_t>() != 0;
  m.pending_votes = read_votes(in);
  return m;
}

void write(const status_message& m, wire_writer& out) {
  out.put(m.base).put(m.status).put(m.epoch);
  if (m.status == member_status::succeeded) write(m.view, out);
  if (m.status == member_status::no_part) write(m.pending_votes, out);
}

status_message read_status(wire_reader& in) {
  status_message m;
  m.base = in.get<std::uint64_t>();
  m.status = in.get_enum(member_status::succeeded);
  m.epoch = in.get<std::uint64_t>();
  if (m.status == member_status::succeeded) m.view = read_view(in);
  if (m.status == member_status::no_part) m.pending_votes = read_votes(in);
  return m;
}

}  // namespace

std::string join_record::encode() const {
  wire_writer out;
  write(who, out);
  out.put(attempt).put(last_epoch).put(size).put(backend);
  return as_text(out.view());
}

join_record join_record::decode(const std::string& text) {
  wire_reader in(as_raw(text));
  join_record r;
  r.who = read_address(in);
  r.attempt = in.get<std::uint64_t>();
  r.last_epoch = in.get<std::uint64_t>();
  if (r.last_epoch >= largest_epoch) throw wire_error("no such epoch");
  r.size = in.get<rank_t>();
  r.backend = in.get_enum(backend_kind::nccl);
  in.expect_end();
  return r;
}

std::string join_record::key(const world_name& name, rank_t rank) {
  return fmt::format("mw/{}/join/{}", name.view(), rank);
}

std::string encode(const world_view& view) {
  wire_writer out;
  write(view, out);
  return as_text(out.view());
}

world_view decode_view(const std::string& text) {
  wire_reader in(as_raw(text));
  world_view view = read_view(in);
  in.expect_end();
  return view;
}

bytes encode(const control_message& message) {
  wire_writer out;
  out.put(static_cast<std::uint8_t>(message.index()));
  std::visit(
      overloaded{
          [&](const propose_message& m) {
            write(m.view, out);
            out.put(m.rank).put(m.attempt);
          },
          [&](const ready_message& m) {
            out.put(m.world_id)
                .put(m.rank)
                .put(std::uint8_t{m.able})
                .put(reason(m.reason));
          },
          [&](const commit_message& m) { out.put(m.world_id); },
          [&](const rollback_message& m) { out.put(m.world_id).put(reason(m.reason)); },
          [&](const refuse_message& m) {
            out.put(m.attempt).put(m.why).put(reason(m.reason));
          },
          [&](const broken_message& m) {
            out.put(m.world_id).put(m.why).put(m.culprit).put(reason(m.detail));
          },
          [&](const survivor_message& m) { write(m, out); },
          [&](const status_message& m) { write(m, out); },
          [&](const successor_message& m) {
            out.put(m.base);
            write(m.view, out);
          },
      },
      message);
  return out.take();
}

control_message decode_control(std::span<const std::byte> message) {
  wire_reader in(message);
  control_message decoded;
  switch (in.get_enum(message_kind::successor)) {
    case message_kind::propose: {
      propose_message m;
      m.view = read_view(in);
      m.rank = read_rank(in);
      m.attempt = in.get<std::uint64_t>();
      if (m.rank < 1 || m.rank >= m.view.size())
        throw wire_error("a proposal for no member");
      decoded = std::move(m);
      break;
    }
    case message_kind::ready: {
      ready_message m;
      m.world_id = in.get<std::uint64_t>();
      m.rank = read_rank(in);
      m.able = in.get<std::uint8_t>() != 0;
      m.reason = read_reason(in);
      decoded = std::move(m);
      break;
    }
    case message_kind::commit:
      decoded = commit_message{in.get<std::uint64_t>()};
      break;
    case message_kind::rollback: {
      rollback_message m;
      m.world_id = in.get<std::uint64_t>();
      m.reason = read_reason(in);
      decoded = std::move(m);
      break;
    }
    case message_kind::refuse: {
      refuse_message m;
      m.attempt = in.get<std::uint64_t>();
      m.why = read_cause(in);
      if (m.why == cause::none) throw wire_error("a refusal without a cause");
      m.reason = read_reason(in);
      decoded = std::move(m);
      break;
    }
    case message_kind::broken: {
      broken_message m;
      m.world_id = in.get<std::uint64_t>();
      m.why = read_cause(in);
      if (m.why == cause::none) throw wire_error("a break without a cause");
      m.culprit = read_rank(in);
      m.detail = read_reason(in);
      decoded = std::move(m);
      break;
    }
    case message_kind::survivor:
      decoded = read_survivor(in);
      break;
    case message_kind::status:
      decoded = read_status(in);
      break;
    case message_kind::successor: {
      successor_message m;
      m.base = in.get<std::uint64_t>();
      m.view = read_view(in);
      decoded = std::move(m);
      break;
    }
  }
  in.expect_end();
  return decoded;
}

bytes encode(const claim_query& query) {
  wire_writer out;
  out.put(query.name.view()).put(query.rank).put(query.epoch);
  out.put_raw(query.holder.raw());
  return out.take();
}

claim_query decode_claim(std::span<const std::byte> query) {
  wire_reader in(query);
  claim_query q;
  q.name = in.get_text(63);
  q.rank = read_rank(in);
  q.epoch = in.get<std::uint64_t>();
  q.holder = read_incarnation(in);
  in.expect_end();
  return q;
}

claim_answer decode_answer(std::span<const std::byte> answer) noexcept {
  MW_ASSERT(!answer.empty(), "only an answer that is not empty is decoded");
  const auto said = static_cast<claim_answer>(answer[0]);
  return said <= claim_answer::gone ? said : claim_answer::vacant;
}

}  // namespace manyworlds::inline v0::detail
