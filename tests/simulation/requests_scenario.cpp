// A lane for each request, and many of them given up: what they leave behind must not
// keep the others from their answers (laws 1, 5, 9 and 10).
#include <fmt/format.h>

#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

namespace {

constexpr std::size_t parts = 3;
constexpr mw::duration longest_answer = 20s;

struct answer_part {
  std::uint64_t lane;
  std::uint64_t number;
};

class requests_scenario {
 public:
  requests_scenario(std::uint64_t seed, std::size_t lines, placement where)
      : all_(seed, network(where)), where_(where) {
    all_.lines_kept = lines;
  }
  seed_report run();

 private:
  static mw::simulation_options network(placement where) {
    mw::simulation_options o;
    o.shared_memory = where == placement::together;
    if (o.shared_memory) o.longest_turn = 2us;
    return o;
  }
  [[nodiscard]] std::uint64_t pick(std::uint64_t below) {
    return all_.sim.random().below(below);
  }
  void plan();
  mw::task<void> serve(member_process& self);
  mw::task<void> answer(mw::world& w, std::size_t request);
  mw::task<void> ask(member_process& self);
  mw::task<void> receive(mw::world& w, std::size_t request);
  void receive_part(std::size_t request, std::size_t part,
                    const std::vector<std::uint64_t>& got);
  mw::task<mw::world> joined(member_process& self, mw::rank_t rank);

  struct request {
    std::size_t words = 0;
    bool is_given_up = false;
    bool discards = false;
    /// Its receives are given up now and then, and begun again.
    bool hesitates = false;
    mw::duration begins{0};
    mw::duration asks{0};
    mw::duration patience{0};
    std::size_t received = 0;
  };

  cluster all_;
  placement where_;
  std::vector<request> requests_;
  std::size_t answered_ = 0;
  std::size_t served_ = 0;
};

void requests_scenario::plan() {
  // The window of a world of two is 4 MiB: what is given up fills it.
  constexpr std::size_t words[] = {512, 2'048, 8'000, 8'000, 20'000};
  const bool discards = pick(3) == 0;
  for (std::size_t i = 0; i < 240; ++i) {
    request& r = requests_.emplace_back();
    r.words = words[pick(5)];
    r.is_given_up = pick(3) > 0;
    r.discards = discards;
    r.hesitates = pick(3) == 0;
    r.begins = mw::duration(std::chrono::microseconds(300 * i + pick(300)));
    r.asks = r.begins + std::chrono::microseconds(pick(600));
    r.patience = std::chrono::microseconds(1 + pick(400));
  }
}

mw::task<mw::world> requests_scenario::joined(member_process& self, mw::rank_t rank) {
  mw::world_options options;
  options.name = mw::world_name("requests");
  options.rank = rank;
  options.size = 2;
  mw::world w(self.runtime(), *self.rendezvous, options);
  co_await w;
  co_return w;
}

mw::task<void> requests_scenario::answer(mw::world& w, std::size_t request) {
  const auto& asked = requests_[request];
  co_await mw::sleep_for(asked.begins);
  std::vector<std::uint64_t> text[parts];
  for (std::size_t i = 0; i < parts; ++i) {
    text[i].assign(asked.words, request * parts + i);
  }
  const mw::lane on(request + 1);
  // What was given up is waited for by none: its answers are given up as well.
  const mw::duration limit = asked.is_given_up ? mw::duration(3s) : longest_answer;
  auto ended =
      co_await mw::when_all(mw::outcome(w.send(text[0], mw::to{1}, on).within(limit)),
                            mw::outcome(w.send(text[1], mw::to{1}, on).within(limit)),
                            mw::outcome(w.send(text[2], mw::to{1}, on).within(limit)));
  ++served_;
  if (asked.is_given_up) co_return;
  const bool all_sent = std::get<0>(ended) && std::get<1>(ended) && std::get<2>(ended);
  if (!all_sent) {
    all_.story.complain(
        fmt::format("law 10: an answer on lane {} was not sent though its "
                    "receive waits",
                    on.number()));
  }
}

mw::task<void> requests_scenario::serve(member_process& self) {
  mw::world w = co_await joined(self, 0);
  auto all = [&](mw::scope& s) -> mw::task<void> {
    for (std::size_t i = 0; i < requests_.size(); ++i) s.spawn(answer(w, i));
    co_return;
  };
  co_await mw::scope::run(all);
  co_await w.broken();
}

void requests_scenario::receive_part(std::size_t request, std::size_t part,
                                     const std::vector<std::uint64_t>& got) {
  for (const std::uint64_t word : got) {
    if (word == request * parts + part) continue;
    all_.story.complain(
        fmt::format("law 5: part {} of request {} is {}", part, request, word));
    return;
  }
  ++requests_[request].received;
}

mw::task<void> requests_scenario::receive(mw::world& w, std::size_t request) {
  auto& asked = requests_[request];
  co_await mw::sleep_for(asked.asks);
  const mw::lane on(request + 1);
  std::vector<std::uint64_t> got(asked.words);
  std::size_t part = 0;
  const std::size_t wanted = asked.is_given_up ? pick(parts) : parts;
  int attempts = 0;
  while (part < wanted) {
    const bool hesitates = asked.hesitates && ++attempts < 6;
    const mw::duration limit = hesitates ? asked.patience : longest_answer;
    const auto received =
        co_await mw::outcome(w.recv(got, mw::from{0}, on).within(limit));
    if (received) {
      receive_part(request, part, got);
      ++part;
    } else if (received.error().cause != mw::cause::timed_out) {
      co_return;
    } else if (!hesitates) {
      if (!asked.is_given_up) {
        all_.story.complain(fmt::format(
            "law 9: part {} of request {} does not come to its receive", part, request));
      }
      break;
    }
  }
  if (asked.is_given_up) {
    auto last = w.recv(got, mw::from{0}, on).within(asked.patience);
    if (asked.discards) {
      (void)co_await mw::outcome(std::move(last).discarding());
    } else {
      (void)co_await mw::outcome(std::move(last));
    }
  }
  ++answered_;
}

mw::task<void> requests_scenario::ask(member_process& self) {
  mw::world w = co_await joined(self, 1);
  auto all = [&](mw::scope& s) -> mw::task<void> {
    for (std::size_t i = 0; i < requests_.size(); ++i) s.spawn(receive(w, i));
    co_return;
  };
  co_await mw::scope::run(all);
  co_await w.broken();
}

seed_report requests_scenario::run() {
  plan();
  member_process& server = all_.add("server");
  member_process& client =
      where_ == placement::together ? all_.add("client", server) : all_.add("client");
  server.start(serve(server));
  client.start(ask(client));
  const auto is_over = [&] {
    return answered_ == requests_.size() && served_ == requests_.size();
  };
  if (!all_.run_until(is_over, 60s)) {
    all_.story.complain(fmt::format("law 9: of {} requests {} were served, {} answered",
                                    requests_.size(), served_, answered_));
  }
  return finished(all_);
}

}  // namespace

seed_report run_requests_seed(std::uint64_t seed, std::size_t lines, placement where) {
  return requests_scenario(seed, lines, where).run();
}

}  // namespace manyworlds_tests
