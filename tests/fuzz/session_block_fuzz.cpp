// Commands as a worker reads them, and replies as a controller does: whatever the head
// says, it is refused, or all that it speaks of lies in the block behind it. What is sent
// is read as it was.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "spmd/mesh_book.hpp"
#include "spmd/received_command.hpp"
#include "spmd/register_file.hpp"

using namespace manyworlds;
using command_wire::command_head;
using command_wire::command_kind;
using command_wire::reply_head;
using command_wire::reply_kind;
using fuzzing::input;
using fuzzing::must;

namespace {

constexpr std::size_t most_bytes = 1 << 16;

/// Reads every byte, which the sanitizer watches.
std::size_t sum_of(std::span<const std::byte> all) {
  std::size_t sum = 0;
  for (const std::byte each : all) sum += static_cast<std::size_t>(each);
  return sum;
}

received_block filled(input& in, std::size_t bytes) {
  received_block block(bytes);
  const std::span<std::byte> all = block.bytes_at(0, bytes);
  std::ranges::fill(all, std::byte{});
  in.take_into(all);
  return block;
}

void read_values(value_reader in) {
  try {
    while (!in.is_at_end()) {
      switch (in.next()) {
        case value_kind::reference:
          static_cast<void>(in.reference());
          break;
        case value_kind::integer:
          static_cast<void>(in.integer());
          break;
        case value_kind::list:
          static_cast<void>(argument<std::vector<std::string>>::read(in));
          break;
        case value_kind::elements:
          static_cast<void>(argument<std::vector<int>>::read(in));
          break;
        default: {
          const tensor x = argument<tensor>::read(in);
          static_cast<void>(
              sum_of({static_cast<const std::byte*>(x.data()), x.size_bytes()}));
        }
      }
    }
  } catch (const value_error&) {
    // What does not fit.
  }
}

/// What a worker does with a command's registers. Indices are few, so that they meet.
void use_registers(received_command& c, register_file& file) {
  register_id result = c.head.result;
  if (result.index < register_file::most_registers) result.index %= 64;
  try {
    if (c.head.call % 2 == 0) {
      file.fill(result, {std::make_shared<int>(1), type_token::of<int>()});
      must(file.find(result).type.has_value());
    } else {
      file.fail(result, c.head.call, std::string(c.name()));
    }
  } catch (const value_error&) {
    // An index beyond the limit, or a generation that is over.
  }
  c.each_release([&](register_id which) {
    file.release(which);
    which.index %= 64;
    file.release(which);
  });
  must(file.held() <= file.size() && file.size() <= 64);
}

/// Whatever a head says, no more is read of its message than there is.
template <class Head, class Fits>
void check_small_block(const Head& head, Fits fits) {
  const head_and_block<Head> whole{head, {}};
  const message_info without_payload;
  const std::size_t bytes = block_bytes(whole, without_payload);
  if (!fits(head, bytes)) return;
  must(bytes <= whole.room);
  must(block_of(whole, without_payload).size() == bytes);
}

void read_command(input& in, register_file& file) {
  command_head head{};
  in.take_into(std::as_writable_bytes(std::span(&head, 1)));
  check_small_block(head, received_command::fits);
  // The bytes that it speaks of, or others.
  std::size_t bytes = in.take<std::uint16_t>();
  if (bytes % 4 != 0) {
    head.values_bytes %= most_bytes;
    head.beside_bytes %= most_bytes;
    head.releases %= 32;
    const std::size_t front = std::size_t{head.name_bytes} + head.values_bytes;
    bytes = beside_at(front, head.beside_bytes) + head.beside_bytes +
            head.releases * sizeof(register_id);
  }
  if (!received_command::fits(head, bytes)) return;
  must(head.name_bytes + std::size_t{head.values_bytes} <= bytes);
  received_command c{head, filled(in, bytes)};
  static_cast<void>(sum_of(std::as_bytes(std::span(c.name()))));
  read_values(c.values());
  use_registers(c, file);
}

/// Whatever a worker says of a call, it is short, and its time can be added to.
void read_status(const reply_head& head, received_block& block) {
  try {
    const worker_status told = worker_status::read(head, block);
    must(told.call == head.call);
    must(told.doing.size() <= command_wire::longest_doing);
    must(told.in_call >= duration::zero() && told.in_call < duration::max() / 2);
  } catch (const value_error&) {
    // Values of other kinds.
  }
}

/// What a controller does with a question. Meshes, workers and keys are few, so that they
/// meet.
void ask_book(const reply_head& head, received_block& block, mesh_book& book) {
  const int worker = static_cast<int>(head.done % 3);
  std::vector<store_answer> due;
  try {
    store_question q = store_question::read(head, block);
    q.mesh %= 4;
    if (q.mesh == 1) q.number = book[1].number - q.number % 2;
    if (!q.key.empty()) q.key.resize(1);
    due = book.serve(worker, head.call % 8, std::move(q));
  } catch (const value_error&) {
    // What no worker asks.
  }
  for (const store_answer& each : due) {
    value_writer out;
    argument<std::optional<std::string>>::write(out, each.value);
    must(out.written().size() <= command_wire::most_question_bytes);
  }
  if (head.sent % 16 == 0) book.forget(worker);
  if (head.received % 64 == 0) book[1].supersede();
  for (const session_mesh& each : book.all()) {
    must(each.keys->keys() <= mesh_keys::most_keys * each.workers.size());
    must(each.keys->waits() <= mesh_keys::most_waits * each.workers.size());
  }
}

/// As its worker makes it, with a head of any kind.
void ask_and_serve(input& in, mesh_book& book) {
  reply_head head{};
  in.take_into(std::as_writable_bytes(std::span(&head, 1)));
  store_question q;
  q.kind = static_cast<question_kind>(1 + in.take<std::uint8_t>() % 5);
  q.mesh = 1 + in.take<std::uint8_t>() % 2;
  q.number = 1;
  q.key = std::string(1, in.take<char>());
  q.value = std::string(in.take<std::uint8_t>(), 'v');
  q.expected = std::string(in.take<std::uint8_t>() % 2, 'v');
  value_writer out;
  q.write(out);
  const std::span<const std::byte> written = out.written();
  head.kind = reply_kind::question;
  head.values_bytes = static_cast<std::uint32_t>(written.size());
  head.beside_bytes = 0;
  must(reply_fits(head, written.size()));
  received_block block(written.size());
  std::ranges::copy(written, block.bytes_at(0, written.size()).begin());
  const store_question found = store_question::read(head, block);
  must(found.kind == q.kind && found.mesh == q.mesh && found.key == q.key);
  must(found.value == q.value && found.expected == q.expected);
  ask_book(head, block, book);
}

void read_reply(input& in, mesh_book& book) {
  reply_head head{};
  in.take_into(std::as_writable_bytes(std::span(&head, 1)));
  check_small_block(head, reply_fits);
  std::size_t bytes = in.take<std::uint16_t>();
  if (bytes % 4 != 0) {
    head.values_bytes %= most_bytes;
    head.beside_bytes %= most_bytes;
    head.kind = static_cast<reply_kind>(static_cast<unsigned>(head.kind) % 8);
    bytes = beside_at(head.values_bytes, head.beside_bytes) + head.beside_bytes;
  }
  if (!reply_fits(head, bytes)) return;
  received_block block = filled(in, bytes);
  if (head.kind == reply_kind::failed)
    static_cast<void>(sum_of(block.bytes_at(0, head.values_bytes)));
  if (head.kind == reply_kind::status) read_status(head, block);
  if (head.kind == reply_kind::question) ask_book(head, block, book);
  if (head.kind == reply_kind::ended)
    read_values(block.values_at(0, head.values_bytes, head.beside_bytes));
}

/// As the controller makes it, and as the worker takes it.
void send_and_read(input& in) {
  const std::string name(in.take<std::uint8_t>(), 'f');
  value_writer out;
  std::vector<tensor> given;
  for (unsigned left = in.take<std::uint8_t>() % 4; left > 0; --left) {
    const auto count = static_cast<std::int64_t>(in.take<std::uint16_t>() % 9'000);
    given.push_back(tensor::zeros(count, dtype::uint8));
    in.take_into(std::as_writable_bytes(given.back().as<std::uint8_t>()));
  }
  for (const tensor& each : given) argument<tensor>::write(out, each);
  const std::span<const std::byte> written = out.written();
  const auto said = std::as_bytes(std::span(name));
  std::vector<std::byte> front(said.begin(), said.end());
  front.insert(front.end(), written.begin(), written.end());
  const sent_block sent(front, out.beside());
  command_head head{};
  head.kind = command_kind::call;
  head.name_bytes = static_cast<std::uint16_t>(name.size());
  head.values_bytes = static_cast<std::uint32_t>(written.size());
  head.beside_bytes = sent.beside_bytes();
  must(received_command::fits(head, sent.size()));
  received_command c{head, received_block(sent.size())};
  std::size_t at = 0;
  for (const const_buffer_view& each : sent.views()) {
    std::memcpy(c.block.bytes_at(at, each.size_bytes()).data(), each.data(),
                each.size_bytes());
    at += each.size_bytes();
  }
  must(at == sent.size() && c.name() == name);
  value_reader values = c.values();
  for (const tensor& each : given) {
    const tensor found = argument<tensor>::read(values);
    must(std::ranges::equal(found.as<std::uint8_t>(), each.as<std::uint8_t>()));
  }
  must(values.is_at_end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  register_file file;
  mesh_book book;
  book.find_or_add({0, 1});
  book.find_or_add({1, 0, 2});
  for (int i = 0; i < 64 && !in.ended(); ++i) {
    switch (in.take<std::uint8_t>() % 5) {
      case 0:
        read_reply(in, book);
        break;
      case 1:
        send_and_read(in);
        break;
      case 2:
        ask_and_serve(in, book);
        break;
      default:
        read_command(in, file);
    }
  }
  return 0;
}
