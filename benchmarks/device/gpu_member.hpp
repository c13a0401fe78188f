// GPU member: a process of a benchmark on GPUs. Where there are fewer GPUs than processes
// they share one.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "../member.hpp"
#include "by_hand.hpp"

namespace mwbench {

class gpu_member {
 public:
  gpu_member(const common_options& common, mw::rank_t rank)
      : cuda_(by_hand::find()),
        devices_(count(cuda_)),
        rank_(rank),
        device_(rank % devices_),
        member_(common),
        pool_(device_) {}

  [[nodiscard]] const by_hand& cuda() const noexcept { return cuda_; }
  [[nodiscard]] member& base() noexcept { return member_; }
  [[nodiscard]] mw::runtime& runtime() noexcept { return member_.runtime(); }
  [[nodiscard]] const mw::device_pool& pool() const noexcept { return pool_; }
  [[nodiscard]] mw::rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] int device() const noexcept { return device_; }

  [[nodiscard]] mw::world describe(std::string_view name, mw::rank_t size,
                                   mw::device_options how = {}) {
    mw::world_options options{.name = name, .rank = size == 1 ? 0 : rank_, .size = size};
    options.backend = mw::backend_kind::nccl;
    options.device = device_;
    options.on_device = how;
    // What is called by hand waits where it is called.
    options.on_device.blocked_call = std::chrono::seconds(60);
    return mw::world(runtime(), member_.store(), options);
  }

  /// Another rank. NCCL refuses two of one host on one GPU, and believes what this
  /// variable says.
  [[nodiscard]] child start(mw::rank_t rank, std::string_view role = "peer") const {
    std::vector<std::string> environment;
    if (rank >= devices_) environment.push_back(fmt::format("NCCL_HOSTID=rank{}", rank));
    return member_.start(fmt::format("{}/{}", role, rank), environment);
  }

  /// First, once.
  void tell(report& out) { out.machine(member_.engine(), facts_of(cuda_, device_)); }
  /// A row that is found alone must not pass for a measurement.
  void row(report& out, fields values) const {
    if (cuda_.is_emulated) values["emulated"] = true;
    out.row(values);
  }

 private:
  static int count(const by_hand& cuda) {
    int devices = 0;
    cuda.check(cuda.device_count(&devices));
    return devices;
  }

  const by_hand cuda_;
  const int devices_;
  const mw::rank_t rank_;
  const int device_;
  member member_;
  const mw::device_pool pool_;
};

/// Of "peer/1".
[[nodiscard]] inline mw::rank_t rank_in(std::string_view role) {
  const auto at = role.rfind('/');
  return at == role.npos ? 0 : std::stoi(std::string(role.substr(at + 1)));
}

/// Not zeros, which some hardware moves and sums faster.
[[nodiscard]] inline mw::task<void> fill(mw::device_view into) {
  std::vector<float> values(into.count());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 2654435761U % 1000);
  }
  co_await mw::copy(into, values);
}

}  // namespace mwbench
