// Rendezvous over tcp: the agent that can listen at the endpoint coordinates.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "launch/meeting_store.hpp"
#include "launch/rendezvous_backends.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// How long, and how often, the store at the endpoint is asked for what torchrun's agents
/// leave there as soon as they have it.
constexpr duration question = std::chrono::milliseconds(500);
constexpr int most_questions = 8;

/// The seat of the agent that serves the store.
class serving_seat final : public lasting_seat {
 public:
  explicit serving_seat(std::unique_ptr<served_store> served)
      : served_(std::move(served)) {}

 private:
  const std::unique_ptr<served_store> served_;
};

class tcp_backend final : public rendezvous_backend {
 public:
  tcp_backend(runtime& rt, const rendezvous_options& options)
      : store_(rt, options), run_id_(options.run_id) {}

  store& meeting_place() override { return store_.client(); }
  task<std::unique_ptr<coordinator_seat>> take_seat(const node_description&) override;
  task<bool> is_closed() override { co_return false; }
  task<void> coordinator_died(std::string) override {
    tries_.note_death();
    co_return;
  }
  duration patience() const noexcept override { return std::chrono::seconds(2); }
  bool has_successors() const noexcept override { return false; }

 private:
  [[nodiscard]] task<void> refuse_torchruns();

  meeting_store store_;
  const std::string run_id_;
  seat_tries tries_;
  int questions_ = 0;
};

/// The agents of torchrun's "c10d" would wait for ours, and ours for them. Source of the
/// key: torch 2.6.0, elastic/rendezvous/c10d_rendezvous_backend.py.
task<void> tcp_backend::refuse_torchruns() {
  if (questions_ == most_questions) co_return;
  ++questions_;
  std::optional<std::string> state;
  try {
    state =
        co_await within(store_.client().try_get("torch.rendezvous." + run_id_), question);
  } catch (const timed_out&) {
    co_return;
  } catch (const store_error&) {
    co_return;
  }
  if (!state) co_return;
  throw rendezvous_error(
      rendezvous_error_kind::refused,
      fmt::format(
          "rendezvous of run {}: the store at {} holds torchrun's state, which is "
          "pickled Python; only its backend static can be shared",
          run_id_, store_.endpoint()));
}

task<std::unique_ptr<coordinator_seat>> tcp_backend::take_seat(const node_description&) {
  for (;;) {
    std::unique_ptr<served_store> served = co_await store_.try_to_serve();
    if (served) co_return std::make_unique<serving_seat>(std::move(served));
    co_await refuse_torchruns();
    co_await tries_.until_next();
  }
}

}  // namespace

std::unique_ptr<rendezvous_backend> make_tcp_backend(runtime& rt,
                                                     const rendezvous_options& options) {
  return std::make_unique<tcp_backend>(rt, options);
}

}  // namespace manyworlds::inline v0::detail
