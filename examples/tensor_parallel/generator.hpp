// Generator: drives the workers of one session through a model, token by token.
#pragma once

#include <chrono>
#include <cstddef>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"

/// A worker that was lost, and is there again.
struct replacement {
  int worker = 0;
  long long pid = 0;
  mw::duration took{};
};

/// A model on the workers of a session, in stages of as many workers. A step that fails
/// leaves it as it was before; after `recover` it can be made again.
class generator {
 public:
  generator(const mw::session& s, const model_config& of, int stages)
      : session_(s), of_(of), stages_(s.split(stages)) {
    for (std::size_t i = 0; i + 1 < stages_.size(); ++i) {
      std::vector<int> both = stages_[i].workers();
      both.insert(both.end(), stages_[i + 1].workers().begin(),
                  stages_[i + 1].workers().end());
      seams_.push_back(s.mesh(std::move(both)));
    }
  }

  /// Lets the workers read their weights. They do both again after a respawn.
  mw::task<void> prepare(const std::string& path) {
    const int stages = static_cast<int>(stages_.size());
    weights_ = co_await session_.call(load, of_, path, stages).replayable();
    cache_ = co_await session_.call(make_cache, weights_).replayable();
    activations_ = co_await session_.empty(mw::shape(0), mw::dtype::float32);
  }

  /// Feeds those of the tokens that the caches do not hold, and returns the logits of the
  /// token that comes next. Errors: mw::call_error.
  mw::task<mw::tensor> step(std::span<const int> tokens) {
    const std::vector<int> fed(tokens.begin() + cached_, tokens.end());
    const mw::shape rows(fed.size(), static_cast<std::size_t>(of_.width));
    const mw::mesh& last = stages_.back();
    const int teller = last.workers().front();
    mw::tensor logits;
    if (stages_.size() == 1) {
      logits = co_await last.call(first_stage, weights_, cache_, fed, cached_)
                   .from(teller)
                   .within(most_for_a_step);
    } else {
      // The calls go out one behind the other; only the last one is answered.
      co_await stages_[0]
          .issue(first_stage, weights_, cache_, fed, cached_)
          .into(activations_);
      for (std::size_t i = 1; i + 1 < stages_.size(); ++i) {
        const auto taken = co_await seams_[i - 1].issue(hand_on, activations_, rows);
        co_await stages_[i]
            .issue(next_stage, weights_, cache_, taken, cached_)
            .into(activations_);
      }
      const auto taken = co_await seams_.back().issue(hand_on, activations_, rows);
      logits = co_await last.call(next_stage, weights_, cache_, taken, cached_)
                   .from(teller)
                   .within(most_for_a_step);
    }
    cached_ = static_cast<int>(tokens.size());
    co_return logits;
  }

  /// Replaces the workers that are lost, adds them to `all`, and waits until the others
  /// have ended what failed. New caches are empty, so that the next step feeds all
  /// tokens.
  ///
  /// Errors: mw::world_error if one more is lost, and for each call that was issued and
  /// has failed untold: it is called again until there is none.
  mw::task<void> recover(std::vector<replacement>& all) {
    const std::vector<mw::session_worker> workers = session_.describe();
    for (const mw::session_worker& each : workers) {
      if (each.state == mw::worker_state::ready) continue;
      const auto begin = std::chrono::steady_clock::now();
      cached_ = 0;
      co_await session_.respawn(each.id);  // runs `load` and `make_cache` again there
      all.push_back({each.id, session_.describe(each.id).pid,
                     std::chrono::steady_clock::now() - begin});
    }
    // Activations that a failed call should have given are not there.
    co_await session_.empty(mw::shape(0), mw::dtype::float32).into(activations_);
    co_await session_.sync();
  }

  /// Begins anew, with empty caches.
  void restart() noexcept { cached_ = 0; }

 private:
  // A worker that dies or stops ends a step earlier.
  static constexpr mw::duration most_for_a_step = std::chrono::seconds(60);

  const mw::session& session_;
  const model_config of_;
  std::vector<mw::mesh> stages_;
  std::vector<mw::mesh> seams_;  ///< each of two neighbouring stages
  mw::dref<part> weights_;
  mw::dref<kv_cache> cache_;
  mw::dref<mw::tensor> activations_;
  int cached_ = 0;
};
