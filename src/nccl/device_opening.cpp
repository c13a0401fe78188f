#include "nccl/device_opening.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "duration_text.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

device_opening::device_opening(membership& of, communicator& what, order_mail& mail,
                               member_turns& turns, device_jobs& jobs, work& ended)
    : member_(of),
      communicator_(what),
      mail_(mail),
      turns_(turns),
      jobs_(jobs),
      ended_(ended),
      hellos_(static_cast<std::size_t>(of.size)) {
  creation_.capability = of.device->capability();
}

void device_opening::begin() {
  if (!member_.leads()) {
    hello_message hello;
    hello.device = member_.device->identity();
    hello.version = nccl_library::get().version;
    hello.capability = member_.device->capability();
    hello.adopts = adopts();
    return mail_.say(0, hello);
  }
  if (member_.size > 1) {
    std::random_device random;
    creation_.order = std::uint64_t{random()} << 32 | random();
    return turns_.set_world(creation_.order);
  }
  if (adopts()) return adopt();
  communicator_.make_unique_id(id_made_);
}

void device_opening::hear(rank_t from, const hello_message& m) {
  auto& place = hellos_[static_cast<std::size_t>(from)];
  if (place) throw wire_error("a hello out of turn");
  if (member_.never_opens || !is_like_ours(from, m)) return;
  place = m;
  creation_.capability = std::min(creation_.capability, m.capability);
  if (++hellos_heard_ + 1 < hellos_.size()) return;
  creation_.note = who_shares_devices();
  if (!adopts()) return communicator_.make_unique_id(id_made_);
  mail_.say_to_others(creation_);
  adopt();
}

bool device_opening::is_like_ours(rank_t from, const hello_message& m) {
  if (m.adopts != adopts()) {
    member_.break_world(from, cause::mismatch,
                        fmt::format("rank {} brings {} communicator, rank 0 {}", from,
                                    m.adopts ? "a" : "no", adopts() ? "one" : "none"));
    return false;
  }
  const int ours = nccl_library::get().version;
  if (m.version == ours) return true;
  member_.break_world(
      from, cause::mismatch,
      fmt::format(
          "rank {} has NCCL {}, rank 0 has NCCL {}: all members need the same version",
          from, version_text(m.version), version_text(ours)));
  return false;
}

std::string device_opening::who_shares_devices() const {
  std::string note;
  for (rank_t a = 0; a < member_.size; ++a) {
    const std::string& device = a == 0 ? member_.device->identity()
                                       : hellos_[static_cast<std::size_t>(a)]->device;
    for (rank_t b = a + 1; b < member_.size && note.size() < 512; ++b) {
      if (hellos_[static_cast<std::size_t>(b)]->device != device) continue;
      note += fmt::format("{}ranks {} and {}", note.empty() ? "" : ", ", a, b);
    }
  }
  if (!note.empty()) {
    note +=
        " share a GPU, which NCCL refuses unless NCCL_MULTI_RANK_GPU_ENABLE=1 "
        "(2.30.3) or their NCCL_HOSTID differ";
  }
  return note;
}

void device_opening::id_made() noexcept {
  if (member_.is_over) return;
  if (communicator_.error()) return ended_.run();
  member_.guarded([this] {
    const ncclUniqueId& id = communicator_.unique_id();
    std::memcpy(creation_.id.data(), id.internal, creation_.id.size());
    mail_.say_to_others(creation_);
    create(id);
  });
}

void device_opening::create(const ncclUniqueId& id) {
  communicator_.create(id, member_.self, member_.size, ended_);
}

void device_opening::hear(const create_message& m) {
  if (std::exchange(is_told_, true)) throw wire_error("a creation out of turn");
  creation_.note = m.note;
  creation_.capability = m.capability;
  turns_.set_world(m.order);
  if (adopts()) return adopt();
  ncclUniqueId id;
  static_assert(sizeof id.internal == sizeof m.id);
  std::memcpy(id.internal, m.id.data(), m.id.size());
  create(id);
}

error_message device_opening::error() const {
  error_message wrong = communicator_.error();
  if (!wrong) return wrong;
  wrong.text = "the communicator could not be made: " + wrong.text;
  if (turns_.waits_for_others()) {
    wrong.text +=
        "; other worlds on the device have operations in flight that do not end";
  }
  if (!creation_.note.empty()) wrong.text += "; " + creation_.note;
  return wrong;
}

std::string device_opening::ready_line(const device_status& now,
                                       const char* links) const {
  const device_costs costs = communicator_.costs();
  const int cuda = cuda_library::get().runtime;
  return fmt::format(
      "device {} is ready after {}: NCCL {}, CUDA {}.{}; {} of {} multiprocessors, {} "
      "MiB, told by {}, over {}; NCCL calls it comm {}",
      now.device, duration_text(costs.time), version_text(costs.version), cuda / 1000,
      cuda % 1000 / 10, now.occupied, now.multiprocessors, costs.bytes >> 20,
      now.is_told_by_words ? "words" : "events", links, fmt::ptr(communicator_.handle()));
}

bool device_opening::withdraw(operation& op) noexcept {
  if (std::erase(waiting_, &op) == 0) return false;
  if (op.device->group) jobs_.fail_group(*op.device->group);
  return true;
}

operation* device_opening::take_waiting() noexcept {
  if (waiting_.empty()) return nullptr;
  operation* const oldest = waiting_.front();
  waiting_.pop_front();
  return oldest;
}

// One at a time: what ends may withdraw another.
void device_opening::fail_waiting(const std::string& why) {
  while (operation* const op = take_waiting()) jobs_.refuse(*op, cause::closed, why);
}

}  // namespace manyworlds::inline v0::detail::nccl
