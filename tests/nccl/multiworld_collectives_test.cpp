// The acceptance cases of collectives with a killed member, A5 to A8, on device memory.
#include <algorithm>
#include <deque>
#include <list>
#include <span>

#include "device_steps.hpp"
#include "other_processes.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

/// Two worlds of three with one leader, of which one loses its last member.
class worlds_of_three {
 public:
  explicit worlds_of_three(std::vector<operation_kind> kinds)
      : kinds_(std::move(kinds)) {}

  void run() {
    const auto lead = [this](member& m, other_processes& others) {
      return this->lead(m, others);
    };
    const auto follow = [this](member& m) { return this->follow(m); };
    run_processes(4, lead, follow);
  }

 private:
  static constexpr rank_t victim = 2;
  static constexpr int steps = 100;

  /// One leader's or worker's part in a world.
  struct part {
    part(member& m, const char* name, rank_t rank,
         const std::vector<operation_kind>& kinds)
        : w(m.rt, m.st, on_gpu(m, name, rank, 3)), stream(m.device) {
      for (const operation_kind kind : kinds) each.emplace_back(m, w, kind, 0, stream);
    }

    /// Until `end`, or the first failure, which it gives.
    task<failure> go_on(int end) {
      for (; step < end; ++step) {
        if (step == 10) is_under_way.set();
        for (device_steps& kind : each) {
          const failure why = co_await kind.take(step);
          if (why) co_return why;
        }
      }
      co_return failure();
    }
    /// Ends when the world has lost its member: nothing succeeds after that.
    task<void> lose() {
      check_death(co_await go_on(1'000'000), victim);
      for (int i = 0; i < 5; ++i) {
        for (device_steps& kind : each) check_death(co_await kind.take(step), victim);
      }
      CHECK(w.state() == world_state::broken);
    }

    world w;
    const owned_stream stream;
    std::deque<device_steps> each;
    int step = 0;
    event is_under_way;
  };

  task<void> lead(member& m, other_processes& others) {
    others.start_all();
    part hurt(m, "hurt", 0, kinds_);
    part whole(m, "whole", 0, kinds_);
    co_await when_all(hurt.w, whole.w);
    event killed;
    const auto kill = [&]() -> task<void> {
      co_await hurt.is_under_way;
      co_await whole.is_under_way;
      others.kill(victim);
      killed.set();
    };
    const auto complete = [&]() -> task<void> {
      check_success(co_await whole.go_on(steps / 2));
      co_await killed;
      check_success(co_await whole.go_on(steps));
    };
    co_await when_all(kill(), hurt.lose(), complete());
    CHECK(whole.step == steps);
    CHECK(whole.w.state() != world_state::broken);
    co_await whole.w.leave();
  }

  /// Processes 1 and 2 are of the world that is hurt, 3 and 4 of the other.
  task<void> follow(member& m) {
    const bool is_hurt = m.rank <= victim;
    part own(m, is_hurt ? "hurt" : "whole", is_hurt ? m.rank : m.rank - 2, kinds_);
    co_await own.w;
    if (is_hurt) {
      co_await own.lose();
    } else {
      check_success(co_await own.go_on(steps));
      co_await own.w.leave();
    }
  }

  const std::vector<operation_kind> kinds_;
};

/// When a member is killed, as the others see it.
enum class moment {
  waiting,    ///< they have begun what it does not enter, and nothing is launched
  hanging,    ///< they wait for it in NCCL's kernels
  launching,  ///< it is launching the same as they are
  between,    ///< the operation before has ended, and they begin the next
};
constexpr std::array all_moments{moment::waiting, moment::hanging, moment::launching,
                                 moment::between};
const char* name_of(moment when) {
  constexpr std::array names{"waiting", "hanging", "launching", "between"};
  return names[static_cast<std::size_t>(when)];
}

/// Of three members one is killed at each moment, in a world for each kind of operation.
/// It is started anew for the next moment, and the worlds are formed again.
class killed_in_each_role {
 public:
  /// The victim is process 2.
  static task<void> lead(member& m, other_processes& others) {
    others.start(1);
    for (rank_t role = 0; role < 3; ++role) {
      killed_in_each_role all(m, role);
      for (const moment when : all_moments) {
        others.start(2, std::to_string(role) + name_of(when));
        if (when == moment::launching) others.expect_death(2);
        const auto kill = [&]() -> task<void> {
          if (when == moment::launching) co_return;
          for (const char* number : {"0", "1"}) {
            co_await told(m, number + all.stage(when));
          }
          others.kill(2);
        };
        co_await when_all(all.survive(when), kill());
      }
    }
  }

  static task<void> follow(member& m) {
    if (m.rank == 2) {
      const std::string part = part_here();
      killed_in_each_role all(m, part[0] - '0');
      for (const moment when : all_moments) {
        if (part.substr(1) == name_of(when)) co_await all.die(when);
      }
      co_return;
    }
    for (rank_t role = 0; role < 3; ++role) {
      killed_in_each_role all(m, role);
      for (const moment when : all_moments) co_await all.survive(when);
    }
  }

 private:
  struct place {
    place(member& m, operation_kind kind, rank_t role)
        : w(m.rt, m.st, options(m, kind, role)),
          stream(m.device),
          steps(m, w, kind, root_of(kind, role), stream) {}

    world w;
    const owned_stream stream;
    device_steps steps;
    event on_stream;
    /// Gives how the operation ended that the death is in the midst of.
    failure end;
  };

  killed_in_each_role(member& m, rank_t role) : member_(m), role_(role) {
    for (const operation_kind kind : all_step_kinds) places_.emplace_back(m, kind, role);
  }

  /// Errors name the role and the kind, and by the epoch the moment.
  static world_options options(const member& m, operation_kind kind, rank_t role) {
    const std::string name =
        "rank " + std::to_string(role) + " " + std::string(name_of(kind));
    const rank_t survivor = m.rank == 0 ? (role == 0 ? 1 : 0) : (role == 2 ? 1 : 2);
    return on_gpu(m, name, m.rank == 2 ? role : survivor, 3);
  }
  /// It is such that an operation needs the victim, at the root or at a member.
  static rank_t root_of(operation_kind kind, rank_t role) {
    const bool gives_to_root =
        kind == operation_kind::reduce || kind == operation_kind::gather;
    return gives_to_root ? (role == 0 ? 1 : 0) : role;
  }
  /// Whether an operation cannot succeed here without the victim.
  [[nodiscard]] bool needs_victim(const place& p) const {
    switch (p.steps.kind()) {
      case operation_kind::reduce:
      case operation_kind::gather:
        return p.w.rank() == root_of(p.steps.kind(), role_);
      case operation_kind::send:
        return false;
      default:
        return true;
    }
  }
  [[nodiscard]] std::string stage(moment when) const {
    return std::to_string(role_) + name_of(when);
  }

  [[nodiscard]] std::string formed(rank_t process, moment when) const {
    return std::to_string(process) + " formed " + stage(when);
  }

  template <class Each>
  task<void> in_all_worlds(Each each) {
    co_await scope::run([&](scope& s) -> task<void> {
      for (place& p : places_) s.spawn(each(p));
      co_return;
    });
  }
  static task<void> form(place& p) {
    if (p.w.epoch() == 0) {
      co_await p.w;
    } else {
      p.w = co_await p.w.reform();
    }
    // All connect their peers here, so that no later call waits for the victim in NCCL.
    check_success(co_await p.steps.take(0));
    co_await p.steps.prepare(1);
  }

  task<void> survive(moment when) {
    co_await in_all_worlds(form);
    if (when == moment::launching) co_await tell(member_, formed(member_.rank, when));
    if (when == moment::between) {
      co_await tell_when_it_is_killed(when);
      co_await in_all_worlds(lose_matched);
    } else if (when == moment::waiting) {
      const auto say = [&]() -> task<void> {
        co_await yield();
        co_await yield();
        co_await tell(member_, std::to_string(member_.rank) + stage(when));
      };
      co_await when_all(in_all_worlds(lose_matched), say());
    } else {
      co_await when_all(launch_all(), say_when_launched(when));
    }
    for (place& p : places_) co_await check_lost(p, when);
  }
  task<void> tell_when_it_is_killed(moment when) {
    co_await tell(member_, std::to_string(member_.rank) + stage(when));
    for (place& p : places_) (void)co_await p.w.broken();
  }
  task<void> say_when_launched(moment when) {
    for (place& p : places_) co_await p.on_stream;
    co_await tell(member_, std::to_string(member_.rank) + stage(when));
  }

  static task<void> lose_matched(place& p) {
    p.end = co_await p.steps.perform(launched::matched);
  }
  /// One after the other, in the same order at all members, as NCCL demands.
  task<void> launch_all() {
    co_await scope::run([this](scope& s) -> task<void> {
      for (place& p : places_) {
        p.on_stream.reset();
        s.spawn(lose_unmatched(p));
        co_await p.on_stream;
      }
    });
  }
  static task<void> lose_unmatched(place& p) {
    p.end = co_await p.steps.perform(launched::unmatched, &p.on_stream);
  }

  /// What succeeded is whole, and nothing succeeds after it.
  task<void> check_lost(place& p, moment when) {
    const bool may_succeed =
        when == moment::launching || (when == moment::hanging && !needs_victim(p));
    if (p.end || !may_succeed) {
      check_death(p.end, role_);
    } else {
      co_await p.steps.check(1);
    }
    check_death(co_await p.w.broken(), role_);
    check_death(co_await p.steps.perform(launched::matched), role_);
    co_await p.w.drained();
  }

  task<void> die(moment when) {
    co_await in_all_worlds(form);
    if (when == moment::launching) {
      // A root may be done with its first operation before the others are.
      for (const rank_t other : {0, 1}) co_await told(member_, formed(other, when));
      co_await launch_half_and_die();
    }
    for (place& p : places_) (void)co_await p.w.broken();
  }
  /// On the thread that calls NCCL.
  task<void> launch_half_and_die() {
    const auto dies = [](ncclComm*, CUstream_st*) { ::raise(SIGKILL); };
    co_await scope::run([&](scope& s) -> task<void> {
      std::size_t launched = 0;
      for (place& p : places_) {
        if (launched++ == places_.size() / 2) co_await p.w.native(dies);
        s.spawn(lose_unmatched(p));
        co_await p.on_stream;
      }
    });
  }

  member& member_;
  const rank_t role_;
  std::list<place> places_;
};

}  // namespace

TEST_SUITE("multiworld") {
  TEST_CASE(
      "A5: when a member is killed amid broadcasts and scatters nothing succeeds after, "
      "and the other world does its hundred") {
    worlds_of_three({operation_kind::broadcast, operation_kind::scatter}).run();
  }

  TEST_CASE(
      "A6: when a member is killed amid gathers and reduces the root and the other "
      "survivor have no success after") {
    worlds_of_three({operation_kind::gather, operation_kind::reduce}).run();
  }

  TEST_CASE(
      "A7: when a member is killed amid all_reduces and all_gathers both survivors have "
      "an error, and the other world does its hundred") {
    worlds_of_three({operation_kind::all_reduce, operation_kind::all_gather}).run();
  }

  TEST_CASE(
      "A8: whichever rank is killed, at whichever moment, amid whichever operation, the "
      "others have whole results or its death as the error") {
    run_processes(2, killed_in_each_role::lead, killed_in_each_role::follow);
  }
}
