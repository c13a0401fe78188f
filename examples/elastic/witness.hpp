// What the workers of the show report of their worlds.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

/// Takes what edges report, and keeps apart the worlds of the worker that has a fault.
/// Thread: any.
class witness {
 public:
  void take(const mw::job_event& report) {
    const std::string world = text_in(report, "world");
    if (world.empty()) return;
    const std::lock_guard lock(mutex_);
    if (report.name == "up")
      epochs_[{world, rank_in(report)}] = number_in(report, "epoch");
    if (!is_watching_ || has_fault(world)) return;
    if (report.name == "broken") ++lost_;
    if (report.name == "gap") {
      const std::chrono::microseconds gap(number_in(report, "us"));
      longest_ = std::max<mw::duration>(longest_, gap);
    }
  }

  /// From now on gaps and losses count, but those in the worlds of that rank.
  void expect_fault(int rank) {
    const std::lock_guard lock(mutex_);
    is_watching_ = true;
    faulty_ = rank;
    before_ = epochs_;
  }
  /// What comes later is the end of all.
  void end() {
    const std::lock_guard lock(mutex_);
    is_watching_ = false;
  }

  /// Returns whether both members of each world have told that it is up.
  [[nodiscard]] bool are_up(int workers) const {
    const std::lock_guard lock(mutex_);
    return epochs_.size() == static_cast<std::size_t>(workers * (workers - 1));
  }
  /// Returns whether the worlds with the fault are up in a later epoch.
  [[nodiscard]] bool are_up_again() const {
    const std::lock_guard lock(mutex_);
    const auto is_later = [this](const auto& each) {
      return !has_fault(each.first.first) || epochs_.at(each.first) > each.second;
    };
    return std::all_of(before_.begin(), before_.end(), is_later);
  }
  [[nodiscard]] int lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  [[nodiscard]] mw::duration longest_gap() const {
    const std::lock_guard lock(mutex_);
    return longest_;
  }

 private:
  template <class T>
  [[nodiscard]] static T value_in(const mw::job_event& report, std::string_view name) {
    for (const auto& [key, value] : report.metadata)
      if (key == name && std::holds_alternative<T>(value)) return std::get<T>(value);
    return {};
  }
  [[nodiscard]] static std::string text_in(const mw::job_event& report,
                                           std::string_view name) {
    return value_in<std::string>(report, name);
  }
  [[nodiscard]] static std::int64_t number_in(const mw::job_event& report,
                                              std::string_view name) {
    return std::stoll("0" + text_in(report, name));
  }
  [[nodiscard]] static std::int64_t rank_in(const mw::job_event& report) {
    return value_in<std::int64_t>(report, "global_rank");
  }
  [[nodiscard]] bool has_fault(const std::string& world) const {
    const std::string rank = std::to_string(faulty_);
    return world.starts_with(rank + "-") || world.ends_with("-" + rank);
  }

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> epochs_, before_;
  bool is_watching_ = false;
  int faulty_ = -1;
  int lost_ = 0;
  mw::duration longest_{};
};

/// Hands what is recorded of the job to a witness. Lifetime: the witness outlives it.
class witness_sink final : public mw::job_sink {
 public:
  explicit witness_sink(witness& to) : to_(to) {}
  void take(const mw::job_event& event) override { to_.take(event); }
  void take(const mw::job_metric&) override {}

 private:
  witness& to_;
};
