#include "nccl/order_message.hpp"

#include <fmt/format.h>

#include "host/device_payload.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

constexpr std::size_t longest_device = 256;
constexpr std::size_t longest_note = 1024;

enum class message_kind : std::uint8_t {
  hello,
  create,
  request,
  launch_pair,
  close_pair,
  enter,
  launch_collective,
  closed,
  made,
  connect,
  crowded,
  places,
  propose,
  promise,
  retract,
};

wire_writer begin(std::uint64_t total, dtype type) {
  std::array<std::byte, host::device_payload_prefix_size> prefix;
  host::encode({total, type}, prefix);
  wire_writer out;
  out.put_raw(prefix);
  return out;
}

wire_reader behind_prefix(std::span<const std::byte> description) {
  wire_reader in(description);
  (void)in.take(host::device_payload_prefix_size);
  return in;
}

void write(wire_writer& out, const launch_place& p) { out.put(p.number).put(p.time); }
void write(wire_writer& out, const hello_message& m) {
  out.put(message_kind::hello).put(std::string_view(m.device)).put(m.version);
  out.put(m.capability).put(static_cast<std::uint8_t>(m.adopts));
}
void write(wire_writer& out, const create_message& m) {
  out.put(message_kind::create).put_raw(m.id).put(m.capability).put(m.order);
  out.put(std::string_view(m.note));
}
void write(wire_writer& out, const pair_request& m) {
  out.put(message_kind::request).put(m.sender).put(m.token).put(m.bytes);
  m.layout.write(out);
}
void write(wire_writer& out, const pair_launch& m) {
  out.put(message_kind::launch_pair).put(m.sender).put(m.receiver).put(m.token);
  out.put(m.bytes);
  m.layout.write(out);
  write(out, m.place);
}
void write(wire_writer& out, const pair_closed& m) {
  out.put(message_kind::close_pair).put(m.sender).put(m.token);
}
void write(wire_writer& out, const enter_message& m) {
  out.put(message_kind::enter).put(m.number).put(m.terms.kind).put(m.terms.type);
  out.put(m.terms.by).put(m.terms.root).put(m.terms.count);
}
void write(wire_writer& out, const collective_launch& m) {
  out.put(message_kind::launch_collective).put(m.number);
  write(out, m.place);
}
void write(wire_writer& out, const collective_closed& m) {
  out.put(message_kind::closed).put(m.number).put(m.left);
}
void write(wire_writer& out, const made_message&) { out.put(message_kind::made); }
void write(wire_writer& out, const connect_message& m) {
  out.put(message_kind::connect);
  write(out, m.place);
}
void write(wire_writer& out, const crowded_message&) { out.put(message_kind::crowded); }
void write(wire_writer& out, const places_message&) { out.put(message_kind::places); }
void write(wire_writer& out, const propose_message& m) {
  out.put(message_kind::propose).put(m.number);
}
void write(wire_writer& out, const promise_message& m) {
  out.put(message_kind::promise).put(m.number).put(m.time);
}
void write(wire_writer& out, const retract_message& m) {
  out.put(message_kind::retract).put(m.number);
}

std::uint64_t read_number(wire_reader& in) {
  const auto number = in.get<std::uint64_t>();
  if (number == 0) throw wire_error("a proposal without a number");
  return number;
}

launch_place read_place(wire_reader& in) {
  launch_place p;
  p.number = in.get<std::uint64_t>();
  p.time = in.get<std::uint64_t>();
  if ((p.number == 0) != (p.time == 0)) throw wire_error("half a place in the order");
  return p;
}

hello_message read_hello(wire_reader& in) {
  hello_message m;
  m.device = in.get_text(longest_device);
  m.version = in.get<std::int32_t>();
  m.capability = in.get<std::int32_t>();
  m.adopts = in.get<std::uint8_t>() != 0;
  return m;
}

create_message read_create(wire_reader& in) {
  create_message m;
  const auto id = in.take(m.id.size());
  std::copy(id.begin(), id.end(), m.id.begin());
  m.capability = in.get<std::int32_t>();
  m.order = in.get<std::uint64_t>();
  m.note = in.get_text(longest_note);
  return m;
}

pair_request read_request(wire_reader& in) {
  pair_request m;
  m.sender = in.get<rank_t>();
  m.token = in.get<std::uint64_t>();
  m.bytes = in.get<std::uint64_t>();
  m.layout = payload_layout::read(in, m.bytes);
  return m;
}

pair_launch read_launch(wire_reader& in) {
  pair_launch m;
  m.sender = in.get<rank_t>();
  m.receiver = in.get<rank_t>();
  m.token = in.get<std::uint64_t>();
  m.bytes = in.get<std::uint64_t>();
  m.layout = payload_layout::read(in, m.bytes);
  m.place = read_place(in);
  return m;
}

promise_message read_promise(wire_reader& in) {
  promise_message m;
  m.number = read_number(in);
  m.time = in.get<std::uint64_t>();
  if (m.time == 0) throw wire_error("a promise without a time");
  return m;
}

enter_message read_enter(wire_reader& in) {
  enter_message m;
  m.number = in.get<std::uint64_t>();
  m.terms.kind = in.get_enum(operation_kind::leave);
  if (!is_collective(m.terms.kind)) throw wire_error("no collective");
  m.terms.type = in.get_enum(static_cast<dtype>(dtype_count - 1));
  m.terms.by = in.get_enum(reduction::avg);
  m.terms.root = in.get<rank_t>();
  m.terms.count = in.get<std::uint64_t>();
  return m;
}

order_message read_message(wire_reader& in) {
  switch (in.get_enum(message_kind::retract)) {
    case message_kind::hello:
      return read_hello(in);
    case message_kind::create:
      return read_create(in);
    case message_kind::request:
      return read_request(in);
    case message_kind::launch_pair:
      return read_launch(in);
    case message_kind::close_pair: {
      pair_closed m;
      m.sender = in.get<rank_t>();
      m.token = in.get<std::uint64_t>();
      return m;
    }
    case message_kind::enter:
      return read_enter(in);
    case message_kind::launch_collective: {
      collective_launch m;
      m.number = in.get<std::uint64_t>();
      m.place = read_place(in);
      return m;
    }
    case message_kind::made:
      return made_message{};
    case message_kind::connect:
      return connect_message{read_place(in)};
    case message_kind::crowded:
      return crowded_message{};
    case message_kind::places:
      return places_message{};
    case message_kind::propose:
      return propose_message{read_number(in)};
    case message_kind::promise:
      return read_promise(in);
    case message_kind::retract:
      return retract_message{read_number(in)};
    case message_kind::closed:
      break;
  }
  collective_closed m;
  m.number = in.get<std::uint64_t>();
  m.left = in.get<rank_t>();
  return m;
}

}  // namespace

bool collective_terms::reduces() const noexcept {
  return kind == operation_kind::reduce || kind == operation_kind::all_reduce ||
         kind == operation_kind::reduce_scatter;
}

std::string collective_terms::text() const {
  std::string all = fmt::format("{} of {} {}", name_of(kind), count, name_of(type));
  if (reduces()) all += fmt::format(" ({})", name_of(by));
  if (root != no_rank) all += fmt::format(" at root {}", root);
  return all;
}

bytes encode(const order_message& message) {
  wire_writer out = begin(0, dtype::uint8);
  std::visit([&](const auto& m) { write(out, m); }, message);
  return out.take();
}

order_message decode_order(std::span<const std::byte> description) {
  wire_reader in = behind_prefix(description);
  order_message message = read_message(in);
  in.expect_end();
  return message;
}

bytes encode(const send_description& d, std::uint64_t total, dtype type) {
  wire_writer out = begin(total, type);
  out.put(d.token);
  d.layout.write(out);
  return out.take();
}

send_description decode_send(std::span<const std::byte> description,
                             std::uint64_t total) {
  wire_reader in = behind_prefix(description);
  send_description d;
  d.token = in.get<std::uint64_t>();
  d.layout = payload_layout::read(in, total);
  in.expect_end();
  return d;
}

}  // namespace manyworlds::inline v0::detail::nccl
