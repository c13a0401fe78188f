// Tests a server under a simulated network. Money is paid into an account over a world
// that a fault breaks again and again. The payer cannot know whether a payment that
// was not confirmed was booked, and pays it once more. Without --numbered the account
// books it twice, on some seeds. The first such seed is printed, and replays the same
// run.
//
//     simulated                  looks for a seed that shows the mistake
//     simulated --seed 12        runs that seed, with every event of the network
//     simulated --numbered       the account knows a payment again: no seed fails
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <manyworlds/mw.hpp>
#include <manyworlds/testing.hpp>
#include <optional>

namespace {

using namespace std::chrono_literals;

struct payment {
  std::uint64_t number = 0;
  std::int64_t amount = 0;
};

/// Books payments until the payer has left.
class account {
 public:
  explicit account(bool knows_payments) noexcept : knows_payments_(knows_payments) {}

  mw::task<void> serve(mw::world& w) {
    for (;;) {
      const auto paid = (co_await w.recv_message<payment>(mw::from{1})).head;
      if (!knows_payments_ || paid.number > last_) balance_ += paid.amount;
      last_ = paid.number;
      co_await w.send_message(paid.number, mw::to{1});
    }
  }
  [[nodiscard]] std::int64_t balance() const noexcept { return balance_; }

 private:
  bool knows_payments_;
  std::int64_t balance_ = 0;
  std::uint64_t last_ = 0;
};

/// Pays the same amount a number of times, each until it is confirmed.
class payer {
 public:
  static constexpr std::uint64_t payments = 20;
  static constexpr std::int64_t amount = 100;

  mw::task<void> pay(mw::world& w) {
    while (confirmed_ < payments) {
      const payment next{confirmed_ + 1, amount};
      co_await w.send_message(next, mw::to{0});
      const auto booked = co_await w.recv_message<std::uint64_t>(mw::from{0}).within(1s);
      confirmed_ = booked.head;
      co_await mw::sleep_for(50ms);
    }
  }

 private:
  std::uint64_t confirmed_ = 0;
};

/// Runs a seed. Returns the balance, or nothing if the run did not end.
std::optional<std::int64_t> balance_of(std::uint64_t seed, bool numbered, bool traced) {
  mw::simulation sim(seed);
  if (traced) {
    sim.trace_to([](const mw::simulated_event& e) { fmt::print("{}\n", e.text()); });
  }
  mw::memory_store store;
  account books(numbered);
  payer customer;
  const mw::runtime_options quiet{.log_from = traced ? mw::log_level::warning
                                                     : mw::log_level::silent};
  mw::simulated_runtime bank(sim, "bank", quiet);
  mw::simulated_runtime shop(sim, "shop", quiet);
  // The account is open for as long as the bank is: its runtime ends it.
  auto served = bank->start(mw::keep(
      *bank, store, {.name = "account", .rank = 0, .size = 2},
      [&books](mw::world& w) -> mw::task<void> { return books.serve(w); },
      mw::after_close::form_again));
  auto paid = shop->start(
      mw::keep(*shop, store, {.name = "account", .rank = 1, .size = 2},
               [&customer](mw::world& w) -> mw::task<void> { return customer.pay(w); }));
  // A connection is reset now and then: the seed says when.
  for (mw::duration at{0}; at < 2s;) {
    at += 100ms + sim.random().at_most(400ms);
    sim.after(at, [&] { sim.cut(bank.process(), shop.process()); });
  }
  if (!sim.run_until([&] { return paid.is_ready(); }, 5min)) {
    fmt::print("seed {} does not end:\n{}", seed, sim.describe());
    return std::nullopt;
  }
  paid.get();
  return books.balance();
}

constexpr std::int64_t expected =
    static_cast<std::int64_t>(payer::payments) * payer::amount;

bool is_right(std::uint64_t seed, bool numbered, bool traced) {
  const auto balance = balance_of(seed, numbered, traced);
  if (balance && *balance == expected) return true;
  fmt::print("seed {}: {} payments of {} make {}, and the account shows {}\n", seed,
             payer::payments, payer::amount, expected, balance.value_or(0));
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("a service with a mistake that a seed finds");
  std::uint64_t seed = 0;
  std::uint64_t seeds = 200;
  bool numbered = false;
  app.add_option("--seed", seed, "runs this seed alone, and tells every event");
  app.add_option("--seeds", seeds, "how many seeds are tried at most");
  app.add_flag("--numbered", numbered, "the account knows a payment again");
  CLI11_PARSE(app, argc, argv);

  if (seed != 0) return is_right(seed, numbered, true) ? 0 : 1;
  for (seed = 1; seed <= seeds; ++seed) {
    if (!is_right(seed, numbered, false)) {
      fmt::print("run it again: simulated --seed {}{}\n", seed,
                 numbered ? " --numbered" : "");
      return 1;
    }
  }
  fmt::print("{} seeds, and every account shows {}\n", seeds, expected);
  return 0;
}
