// Rendezvous over tcp: the agent that can listen at the endpoint coordinates.
#include <memory>
#include <string>
#include <utility>

#include "launch/meeting_store.hpp"
#include "launch/rendezvous_backends.hpp"

namespace manyworlds::inline v0::detail {

namespace {

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
  tcp_backend(runtime& rt, const rendezvous_options& options) : store_(rt, options) {}

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
  meeting_store store_;
  seat_tries tries_;
};

task<std::unique_ptr<coordinator_seat>> tcp_backend::take_seat(const node_description&) {
  for (;;) {
    std::unique_ptr<served_store> served = co_await store_.try_to_serve();
    if (served) co_return std::make_unique<serving_seat>(std::move(served));
    co_await tries_.until_next();
  }
}

}  // namespace

std::unique_ptr<rendezvous_backend> make_tcp_backend(runtime& rt,
                                                     const rendezvous_options& options) {
  return std::make_unique<tcp_backend>(rt, options);
}

}  // namespace manyworlds::inline v0::detail
