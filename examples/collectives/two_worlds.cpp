#include "two_worlds.hpp"

#include <optional>

#include "../shared/terminal.hpp"

namespace {

constexpr int steps = 100, step_of_the_kill = 60;

class two_worlds {
 public:
  two_worlds(const char* name, step_function step) : name_(name), step_(step) {}

  int main(int argc, char** argv) {
    CLI::App app(fmt::format("{}, in two worlds at once.", name_));
    arguments given(app);
    app.add_option("--pause", pause_, "seconds between two steps")->capture_default_str();
    app.add_option("--print-every", print_every_, "print only each N-th step")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    given.ask_launcher({{{1, 0}, {2, 0}}, {{1, 1}}, {{1, 2}}, {{2, 1}}, {{2, 2}}});
    mw::runtime rt(given.runtime());
    rt.serve_dumps();  // for mwstat
    if (given.worlds.empty()) return start_all(rt, given);
    run(rt, given);
    return 0;
  }

 private:
  /// This process is rank 0 of both worlds; rank 2 of world1 is killed on the way.
  int start_all(mw::runtime& rt, arguments& given) {
    const mw::hosted_store host(rt, "127.0.0.1:0");
    given.store = host.address();
    given.worlds = {{1, 0}, {2, 0}};
    pause_ = 0.005;
    print_every_ = steps / 2;
    std::vector<process> others;
    for (const char* who : {"1,1", "1,2", "2,1", "2,2"}) {
      others.push_back(given.start({"--worldinfo", who, "--pause", std::to_string(pause_),
                                    "--print-every", std::to_string(print_every_)},
                                   static_cast<int>(others.size()) + 1, 5));
    }
    victim_ = &others[1];
    run(rt, given);
    bool is_right = world2_ended_ && kill_was_noticed_;
    for (process& p : others) {
      const bool was_killed = &p == victim_;
      const process::ending e = p.join();
      is_right = is_right && e.status == 0 && e.signal == (was_killed ? SIGKILL : 0);
    }
    fmt::print("{}\n", is_right ? "world1 broke, world2 took all its steps"
                                : "the run did not go as expected");
    return is_right ? 0 : 1;
  }

  void run(mw::runtime& rt, const arguments& given) {
    stores through(rt, given);
    memory_.emplace(given.on_gpus() ? given.device : -1);
    const auto all = [&](mw::scope& s) -> mw::task<void> {
      for (const membership& m : given.worlds)
        s.spawn(take_part(rt, through.of(m), m, given.world(m, members)));
      co_return;
    };
    const auto both = [&]() -> mw::task<void> { co_await mw::scope::run(all); };
    rt.run(both());
  }

  /// The failure of a world ends only this task.
  mw::task<void> take_part(mw::runtime& rt, mw::store& store, membership m,
                           mw::world_options options) {
    mw::world w(rt, store, options);
    try {
      co_await w;
      for (int step = 1; step <= steps; ++step) {
        const std::string seen = co_await step_(w, step, *memory_);
        if (step % print_every_ == 0)
          fmt::print("{} rank {} step {}: {}\n", m.name(), m.rank, step, seen);
        if (victim_ && m.world == 1 && step == step_of_the_kill) {
          fmt::print("kill -9 {}, rank 2 of world1\n", victim_->pid());
          victim_->signal(SIGKILL);
        }
        co_await mw::sleep_for(seconds(pause_));
      }
      world2_ended_ = world2_ended_ || m.world == 2;
    } catch (const mw::world_error& e) {
      fmt::print("{} rank {} caught an error: {}\n", m.name(), m.rank, e.what());
      kill_was_noticed_ = e.cause() == mw::cause::peer_died;
      co_return;
    }
    (void)co_await mw::outcome(w.leave());
  }

  const char* const name_;
  const step_function step_;
  std::optional<tensor_memory> memory_;
  double pause_ = 1;
  int print_every_ = 1;
  process* victim_ = nullptr;
  bool world2_ended_ = false, kill_was_noticed_ = false;
};

}  // namespace

int step_in_two_worlds(const char* name, step_function step, int argc, char** argv) try {
  return two_worlds(name, step).main(argc, argv);
} catch (const std::exception& e) {
  fmt::print(stderr, "{}: {}\n", name, e.what());
  return 1;
}
