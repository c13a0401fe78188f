// Show: decodes on workers that are hurt meanwhile, and tells what happens.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bystander.hpp"
#include "faults.hpp"
#include "generator.hpp"
#include "reference.hpp"

struct show_wishes {
  int tokens = 48;
  int stages = 1;
  mw::backend_kind backend = mw::backend_kind::host;
  unsigned seed = 1;
  double pause_s = 0;  ///< between two steps
  bool no_faults = false;
  bool json = false;
  bool log = false;
};

inline double ms_of(mw::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

/// Decodes on one session, whatever happens to its workers.
class show {
 public:
  show(const show_wishes& w, const mw::session& s, const model_config& of)
      : wishes_(w), session_(s), model_(s, of, w.stages) {
    if (!w.no_faults) plan_ = fault_plan(static_cast<int>(s.size()), w.tokens);
  }

  mw::task<void> run(const reference& expected, const std::string& path) {
    co_await model_.prepare(path);
    for (const mw::session_worker& each : session_.describe())
      tell(fmt::format("worker {} is pid {}", each.id, each.pid));
    for (std::size_t i = 0; i < expected.steps(); ++i) {
      const mw::tensor logits = co_await step(static_cast<int>(i), expected.before(i));
      if (!expected.agrees(i, logits)) ++wrong_;
      tell_token(best_of(logits));
      if (wishes_.pause_s > 0) {
        co_await mw::sleep_for(std::chrono::duration_cast<mw::duration>(
            std::chrono::duration<double>(wishes_.pause_s)));
      }
    }
    end_line();
  }

  [[nodiscard]] int wrong() const noexcept { return wrong_; }
  [[nodiscard]] bool all_named() const noexcept { return plan_.all_named(); }
  [[nodiscard]] const std::vector<incident>& incidents() const noexcept {
    return incidents_;
  }

 private:
  /// Makes a step until it has ended well.
  mw::task<mw::tensor> step(int number, std::span<const int> tokens) {
    for (int attempts = 1;; ++attempts) {
      std::optional<mw::world_error> error;
      try {
        auto [logits, nothing] =
            co_await mw::when_all(model_.step(tokens), plan_.hurt(session_, number));
        co_return std::move(logits);
      } catch (const mw::world_error& e) {
        if (attempts == most_attempts) throw;
        error = e;
      }
      co_await go_on_after(*std::move(error), number);
    }
  }

  /// Replaces the workers that are lost, and tells why the step has failed.
  mw::task<void> go_on_after(mw::world_error error, int step) {
    const mw::time_point noticed = std::chrono::steady_clock::now();
    std::vector<mw::world_error> told;
    told.push_back(std::move(error));
    std::vector<replacement> replaced;
    int attempts = 0;
    for (bool is_over = false; !is_over && ++attempts < most_attempts;) {
      try {
        co_await model_.recover(replaced);
        is_over = true;
      } catch (const mw::world_error& e) {
        told.push_back(e);
      }
    }
    const mw::world_error& why = reason_among(told, replaced);
    incident seen{.step = step, .worker = why.failure().rank, .error = why.what()};
    plan_.explain(seen, noticed);
    for (const replacement& each : replaced) {
      if (each.worker != seen.worker) continue;
      seen.back_after = each.took;
      seen.pid = each.pid;
    }
    tell(text_of(seen));
    incidents_.push_back(std::move(seen));
  }

  /// Who waits for what an issued call should have made is told only that it failed, and
  /// a worker may tell of its peer's end before that is known here.
  static const mw::world_error& reason_among(const std::vector<mw::world_error>& told,
                                             const std::vector<replacement>& replaced) {
    const auto names_one = [&](const mw::world_error& e) {
      return std::ranges::count(replaced, e.failure().rank, &replacement::worker) != 0;
    };
    const auto is_own = [](const mw::world_error& e) {
      return e.cause() != mw::cause::register_lost;
    };
    const auto is_of_step = [&](const mw::world_error& e) {
      const std::string& call = e.failure().call;
      return names_one(e) && (call.ends_with("_stage") || call.ends_with("hand_on"));
    };
    auto found = std::ranges::find_if(told, is_of_step);
    if (found == told.end()) found = std::ranges::find_if(told, names_one);
    if (found == told.end()) found = std::ranges::find_if(told, is_own);
    return found == told.end() ? told.front() : *found;
  }

  [[nodiscard]] std::string text_of(const incident& i) const {
    std::string text = fmt::format("step {}: {}", i.step, i.error);
    if (i.detected_after)
      text += fmt::format("; noticed after {:.1f} ms", ms_of(*i.detected_after));
    if (i.back_after) {
      text += fmt::format(
          "; it is pid {} now, after {:.1f} ms, and the caches are made again", i.pid,
          ms_of(*i.back_after));
    } else {
      text += "; the step is made again";
    }
    return text;
  }

  void tell(const std::string& line) {
    if (wishes_.json) return;
    end_line();
    fmt::print("{}\n", line);
  }
  void tell_token(int token) {
    if (wishes_.json) return;
    fmt::print("{}{}", in_line_ == 0 ? "tokens: " : " ", token);
    std::fflush(stdout);
    if (++in_line_ == 16) end_line();
  }
  void end_line() {
    if (std::exchange(in_line_, 0) != 0) fmt::print("\n");
  }

  // Of one step: it fails as often if its workers are killed faster than they come back.
  static constexpr int most_attempts = 100;

  const show_wishes wishes_;
  const mw::session& session_;
  generator model_;
  fault_plan plan_;
  int wrong_ = 0;
  int in_line_ = 0;
  std::vector<incident> incidents_;
};
