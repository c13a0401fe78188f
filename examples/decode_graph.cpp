// A decode loop over two GPUs: the collectives of a step are captured once in a CUDA
// graph, which is launched for every token. Rank 1 is killed at a random moment. Rank 0
// notices, the world forms again, the graph is captured again, and the tokens continue
// where they were. Alone it starts rank 1 itself. By hand, one process per terminal:
// decode_graph --worldinfo 1,0;  decode_graph --worldinfo 1,1 --device 1. Or by a
// launcher: mpirun -n 2 decode_graph
#include "decode_graph/decode_step.hpp"

#include <chrono>
#include <exception>
#include <random>

#include "shared/terminal.hpp"

namespace {

struct plan {
  int tokens = 300;
  unsigned seed = 1;
};

class member {
 public:
  /// Runs until it has all tokens, and at least this many graphs.
  member(mw::runtime& rt, const arguments& given, const plan& p, int graphs = 1)
      : runtime_(rt),
        given_(given),
        plan_(p),
        graphs_(graphs),
        rank_(given.worlds.front().rank),
        memory_(given.device),
        stores_(rt, given) {}

  mw::task<void> run() {
    const struct end_teller {
      mw::event& told;
      ~end_teller() { told.set(); }
    } at_end{third_or_end_};
    const membership& m = given_.worlds.front();
    const auto body = [this](mw::world& w) { return decode(w); };
    co_await memory_.fill(rank_ == 0 ? 1 : 2);
    mw::task<void> kept = mw::keep(runtime_, stores_.of(m), given_.world(m, 2),
                                   telling(given_, fmt::format("rank {}", rank_), body));
    co_await std::move(kept);
  }

  /// Ends when a third of the tokens is there, or the run has ended before. Returns
  /// whether they are there.
  mw::task<bool> is_under_way() {
    co_await third_or_end_.wait();
    co_return count_ >= plan_.tokens / 3;
  }
  void note_kill() { killed_ = clock::now(); }

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] bool is_right() const { return wrong_ == 0; }
  void tell() const {
    if (rank_ != 0) return;
    fmt::print("{} tokens, {} wrong; {} graphs were captured, and ran {} times\n", count_,
               wrong_, captured_, runs_);
  }

 private:
  using clock = std::chrono::steady_clock;

  mw::task<void> decode(mw::world& w) {
    std::exception_ptr error;
    try {
      co_await replay(w);
    } catch (const mw::world_error&) {
      error = std::current_exception();
    }
    if (!error) co_return;
    // The stream may still be writing to the memory, which the next world's graph uses.
    if (w.state() == mw::world_state::broken) co_await w.drained();
    std::rethrow_exception(error);
  }

  mw::task<void> replay(mw::world& w) {
    step_graph graph(cuda_);
    const auto capture = [&](ncclComm_t on, cudaStream_t stream) {
      graph.capture(memory_, on, stream);
    };
    const auto launch = [&](ncclComm_t, cudaStream_t stream) { graph.launch(stream); };
    co_await w.native(capture);
    const mw::graph_hold hold(w, [&] { graph.drop(); });
    ++captured_;
    if (rank_ == 0)
      fmt::print("rank 0: the graph of {}@{} is captured: a broadcast and {} sums\n",
                 w.name().view(), w.epoch(), layers);
    for (bool is_over = false; !is_over;) {
      is_over = count_ >= plan_.tokens && captured_ >= graphs_;
      memory_.set_token(is_over ? over : static_cast<float>(token_));
      // A ticket settles only if the world had not broken: a graph that a dead peer cut
      // short completes as well, over garbage.
      const mw::ticket launched = co_await w.native(launch).enqueue();
      co_await w.settled(launched);
      ++runs_;
      if (rank_ != 0) is_over = memory_.token() == over;
      if (!is_over) take();
    }
  }

  /// The step is done: its result is the next token.
  void take() {
    const auto used = static_cast<int>(memory_.token());
    if (!memory_.is_right() || (rank_ == 0 && used != token_)) ++wrong_;
    token_ = next_token(used);
    ++count_;
    if (count_ >= plan_.tokens / 3) third_or_end_.set();
    if (killed_ == clock::time_point()) return;
    const std::chrono::duration<double, std::milli> gap = clock::now() - killed_;
    killed_ = {};
    fmt::print("rank 0: the next token came {:.0f} ms after the kill\n", gap.count());
  }

  mw::runtime& runtime_;
  const arguments& given_;
  const plan plan_;
  const int graphs_;
  const int rank_;
  const cuda_calls cuda_;
  step_memory memory_;
  stores stores_;
  int token_ = 1, count_ = 0, wrong_ = 0, captured_ = 0, runs_ = 0;
  clock::time_point killed_{};
  mw::event third_or_end_;
};

/// This process is rank 0, and starts rank 1.
bool start_all(mw::runtime& rt, arguments& given, const plan& p) {
  const mw::hosted_store host(rt, "127.0.0.1:0");
  given.store = host.address();
  given.worlds = {{1, 0}};
  const auto start = [&] {
    process other = given.start({"--worldinfo", "1,1"}, 1, 2);
    fmt::print("rank 1 is pid {}\n", other.pid());
    return other;
  };
  process other = start();
  member own(rt, given, p, 2);
  std::minstd_rand random(p.seed);
  const auto script = [&]() -> mw::task<void> {
    if (!co_await own.is_under_way()) co_return;
    // Sleep to a random moment of a step.
    co_await mw::sleep_for(std::chrono::microseconds(random() % 3000));
    fmt::print("kill -9 {}, rank 1, after {} tokens\n", other.pid(), own.count());
    other.signal(SIGKILL);
    own.note_kill();
    (void)other.join();
    other = start();
  };
  const auto both = [&]() -> mw::task<void> {
    co_await mw::when_all(own.run(), script());
  };
  rt.run(both());
  own.tell();
  const process::ending ended = other.join();
  return own.is_right() && ended.signal == 0 && ended.status == 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Tokens decoded by a CUDA graph that holds a world's collectives.");
  arguments given(app);
  given.backend = "nccl";
  plan p;
  app.add_option("--tokens", p.tokens, "least number of tokens of rank 0")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", p.seed, "seed of the moment when rank 1 is killed")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (!given.on_gpus()) throw std::invalid_argument("only GPUs have graphs");
  given.ask_launcher({{{1, 0}}, {{1, 1}}});

  mw::runtime rt(given.runtime());
  rt.serve_dumps();  // for mwstat
  if (given.worlds.empty()) return start_all(rt, given, p) ? 0 : 1;
  member own(rt, given, p);
  rt.run(own.run());
  own.tell();
  return own.is_right() ? 0 : 1;
} catch (const std::exception& e) {
  fmt::print(stderr, "decode_graph: {}\n", e.what());
  return 1;
}
