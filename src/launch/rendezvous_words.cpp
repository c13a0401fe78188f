#include "launch/rendezvous_words.hpp"

#include <string_view>
#include <utility>

#include "launch/notice_board.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_round_text = 1 << 20;
constexpr std::size_t longest_word =
    2 * longest_round_text + 2 * most_notice_bytes + 64 * 1024;
constexpr std::size_t longest_name = 255;
constexpr std::uint32_t most_names = 16 * 1024;
constexpr std::size_t longest_refusal = 1024;

constexpr std::int32_t no_place = -1;

struct word_head {
  std::uint64_t bytes;
};

void put_long(wire_writer& out, std::string_view text) {
  out.put(static_cast<std::uint32_t>(text.size()));
  out.put_raw(std::as_bytes(std::span(text)));
}

std::string get_long(wire_reader& in, std::size_t longest) {
  const auto size = in.get<std::uint32_t>();
  if (size > longest) throw wire_error("a text is longer than any of ours");
  const auto raw = in.take(size);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

void put_names(wire_writer& out, const std::set<std::string>& names) {
  out.put(static_cast<std::uint32_t>(names.size()));
  for (const std::string& name : names) out.put(std::string_view(name));
}

std::set<std::string> get_names(wire_reader& in) {
  const auto count = in.get<std::uint32_t>();
  if (count > most_names) throw wire_error("more nodes than any round has");
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < count; ++i) names.emplace(in.get_text(longest_name));
  return names;
}

void put_notices(wire_writer& out, const std::map<std::string, std::string>& notices) {
  out.put(static_cast<std::uint32_t>(notices.size()));
  for (const auto& [node, text] : notices) {
    out.put(std::string_view(node));
    put_long(out, text);
  }
}

std::map<std::string, std::string> get_notices(wire_reader& in) {
  const auto count = in.get<std::uint32_t>();
  if (count > most_names) throw wire_error("more nodes than any round has");
  std::map<std::string, std::string> notices;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string node(in.get_text(longest_name));
    notices.insert_or_assign(std::move(node), get_long(in, longest_notice));
  }
  return notices;
}

bool get_flag(wire_reader& in) { return in.get<std::uint8_t>() != 0; }

}  // namespace

bytes agent_words::encode() const {
  wire_writer out;
  out.put(std::string_view(node.id)).put(std::string_view(node.host));
  out.put(std::string_view(node.role)).put(static_cast<std::int32_t>(node.slots));
  out.put(static_cast<std::int32_t>(place.value_or(no_place)));
  out.put(min_nodes).put(max_nodes).put(std::uint8_t{asks}).put(std::uint8_t{has_left});
  out.put(how).put(std::uint8_t{closes}).put(highest);
  put_long(out, last_round);
  put_names(out, finished);
  put_names(out, died);
  put_long(out, notice);
  return out.take();
}

agent_words agent_words::decode(std::span<const std::byte> message) {
  wire_reader in(message);
  agent_words said;
  said.node.id = in.get_text(longest_name);
  said.node.host = in.get_text(longest_name);
  said.node.role = in.get_text(longest_name);
  said.node.slots = in.get<std::int32_t>();
  const auto place = in.get<std::int32_t>();
  if (place != no_place) said.place = place;
  said.min_nodes = in.get<std::uint64_t>();
  said.max_nodes = in.get<std::uint64_t>();
  said.asks = get_flag(in);
  said.has_left = get_flag(in);
  said.how = in.get_enum(departure::draining);
  said.closes = get_flag(in);
  said.highest = in.get<std::uint64_t>();
  said.last_round = get_long(in, longest_round_text);
  said.finished = get_names(in);
  said.died = get_names(in);
  said.notice = get_long(in, longest_notice);
  return said;
}

bytes coordinator_words::encode() const {
  wire_writer out;
  out.put(std::string_view(seat)).put(std::string_view(node));
  out.put(std::string_view(refusal));
  put_long(out, last_round);
  out.put(change).put(std::string_view(about)).put(asking).put(std::uint8_t{closed});
  put_names(out, finished);
  put_notices(out, notices);
  return out.take();
}

coordinator_words coordinator_words::decode(std::span<const std::byte> message) {
  wire_reader in(message);
  coordinator_words said;
  said.seat = in.get_text(longest_name);
  said.node = in.get_text(longest_name);
  said.refusal = in.get_text(longest_refusal);
  said.last_round = get_long(in, longest_round_text);
  said.change = in.get_enum(round_change::closed);
  said.about = in.get_text(longest_name);
  said.asking = in.get<std::uint32_t>();
  said.closed = get_flag(in);
  said.finished = get_names(in);
  said.notices = get_notices(in);
  return said;
}

task<void> say(world& w, bytes message) {
  const word_head head{message.size()};
  // Delivered: an agent that leaves ends its world right after its last word.
  co_await w.send_message(head, std::span<const std::byte>(message), to(1 - w.rank()))
      .delivered();
}

task<bytes> hear(world& w) {
  const from peer(1 - w.rank());
  const auto next = co_await w.recv_message<word_head>(peer);
  if (next.head.bytes != next.info.bytes || next.info.bytes > longest_word)
    throw wire_error("a rendezvous message has another size than it says");
  bytes message(next.info.bytes);
  co_await w.recv(std::span<std::byte>(message), peer);
  co_return message;
}

}  // namespace manyworlds::inline v0::detail
