// Launch model: GPUs with few hardware connections, worlds that share them, and messages
// that take their time. The orders, tables and leaders are the library's; what a member
// does with them is said again here in short. By seeds.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "nccl/launch_leader.hpp"
#include "nccl/launch_order.hpp"

namespace manyworlds::testing {

struct model_options {
  std::uint64_t seed = 0;
  int gpus = 3;
  int connections = 1;
  int worlds = 6;
  int operations = 12;
  bool has_order = true;
  bool breaks = false;  ///< some worlds break at any moment
  bool stops = false;   ///< some members stand still for a while
};

class launch_model {
 public:
  explicit launch_model(const model_options& o);

  /// Runs until nothing more happens. What has not ended then waits in a circle.
  void run();
  /// Operations that were launched somewhere, or entered by all, and did not end.
  [[nodiscard]] std::vector<std::string> unfinished() const;
  /// Pairs of operations that two GPUs launched in opposite orders.
  [[nodiscard]] int opposite_orders() const;
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  [[nodiscard]] std::uint64_t retractions() const noexcept { return retractions_; }

 private:
  using action = std::function<void()>;
  using operation_id = std::tuple<int, int, std::uint64_t>;  ///< world, kind, number
  enum kind { connecting, collective, pair };
  struct world;
  struct member;

  /// What was given to a connection: a kernel, or the mark behind it.
  struct command {
    member* of = nullptr;
    std::uint64_t index = 0;  ///< in its stream
    std::optional<operation_id> kernel;
  };
  struct gpu {
    std::shared_ptr<nccl::launch_order> order;
    std::vector<std::deque<command>> connections;
    std::size_t streams = 0;
    time_point launcher_is_free{};
    std::vector<operation_id> launched;
  };
  struct operation {
    std::set<rank_t> members;
    std::set<rank_t> running;
    std::set<rank_t> ended;
  };
  struct member {
    world* of = nullptr;
    rank_t rank = 0;
    gpu* on = nullptr;
    std::size_t connection = 0;
    std::optional<nccl::order_seat> seat;
    bool is_wakeup_pending = false;
    bool has_said_crowded = false;
    bool has_said_made = false;
    bool uses_places = false;
    bool is_orderly = false;
    bool is_connected = false;
    bool is_broken = false;
    int placeless = 0;
    time_point stopped_until{};
    std::deque<std::uint64_t> unanswered;
    std::map<std::uint64_t, operation_id> placed;
    std::uint64_t pushed = 0;
    std::uint64_t done = 0;  ///< of its stream
    std::uint64_t entered = 0;
    time_point last_entry{};
    std::map<rank_t, time_point> channel;  ///< when its last message arrives
  };
  struct plan {
    kind what = collective;
    rank_t sender = no_rank;
    rank_t receiver = no_rank;
  };
  struct world final : nccl::launch_leader::office {
    void tell(rank_t whom, const nccl::order_message& m) override;
    void accuse(rank_t, enum cause, std::string detail) override;
    bool is_credible(std::uint64_t) const override { return true; }

    launch_model* model = nullptr;
    int number = 0;
    std::vector<std::unique_ptr<member>> members;
    std::unique_ptr<nccl::launch_leader> leader;
    std::vector<plan> plans;
    std::size_t ended = 0;  ///< operations that ended at all of their members
    bool is_ticking = false;
    bool is_gone = false;
  };

  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  [[nodiscard]] duration delay(int most_us);
  void at(time_point when, action what);
  void after(int most_us, action what) { at(now_ + delay(most_us), std::move(what)); }

  void make_world(int number);
  void begin(world& w);
  void ring(member& m);
  void look(member& m);
  void send(member& from, rank_t to, nccl::order_message message);
  void hear(member& m, rank_t from, const nccl::order_message& message);
  void lead(world& w, rank_t from, const nccl::order_message& message);
  void follow(member& m, const nccl::order_message& message);
  void launch(member& m, const operation_id& what, nccl::launch_place place);
  void answer(member& m);
  void take_turns(member& m);
  void hand_over(member& m, const operation_id& what,
                 std::shared_ptr<nccl::launch_turn> turn);
  void enter_next(member& m);
  void tick(world& w);
  void advance();
  [[nodiscard]] bool advance(std::deque<command>& connection);
  void end_kernels(const operation_id& what);
  void note_end(member& m, const operation_id& what);
  [[nodiscard]] static bool is_done(const world& w);
  void break_world(world& w);
  void leave(member& m);
  [[nodiscard]] bool is_placeless(const operation_id& what, const member& m) const;

  const model_options options_;
  std::mt19937_64 random_;
  time_point now_{};
  std::uint64_t steps_ = 0;
  std::map<std::pair<time_point, std::uint64_t>, action> future_;
  std::vector<std::unique_ptr<gpu>> gpus_;
  std::vector<std::unique_ptr<world>> worlds_;
  std::map<operation_id, operation> operations_;
  std::set<std::pair<operation_id, rank_t>> placeless_;
  std::uint64_t ended_ = 0;
  std::uint64_t retractions_ = 0;
};

}  // namespace manyworlds::testing
