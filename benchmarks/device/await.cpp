#include <array>

#include "device_questions.hpp"
#include "gpu_member.hpp"

namespace mwbench {

namespace {

struct way {
  mw::launch_on launch;
  mw::completion_by completion;
};
constexpr std::array ways{
    way{mw::launch_on::own_thread, mw::completion_by::words},
    way{mw::launch_on::own_thread, mw::completion_by::events},
    way{mw::launch_on::reactor, mw::completion_by::words},
    way{mw::launch_on::reactor, mw::completion_by::events},
};

std::string_view name_of(mw::launch_on l) {
  return l == mw::launch_on::own_thread ? "own_thread" : "reactor";
}
std::string_view name_of(mw::completion_by c) {
  return c == mw::completion_by::words ? "words" : "events";
}

struct figures {
  samples matched;
  samples unmatched;
  samples spin;
  samples synchronize;
};

/// What is awaited, and by hand: the same sum on the same communicator and stream.
class contest {
 public:
  contest(gpu_member& g, mw::world& w, std::size_t bytes)
      : cuda_(g.cuda()),
        world_(w),
        from_(g.pool(), bytes / sizeof(float), w.stream()),
        into_(g.pool(), from_.count(), w.stream()) {}

  mw::task<void> prepare() { co_await fill(from_); }

  mw::task<void> round(int times, figures& into) {
    const summed_by_hand sum(cuda_, from_.data(), into_.data(), from_.count());
    for (int i = 0; i < times; ++i) {
      const auto begin = now_ns();
      co_await world_.all_reduce(from_, into_, mw::sum).unmatched();
      into.unmatched.add(us_since(begin));
    }
    const auto spin = [&](ncclComm_t on, cudaStream_t stream) {
      sum.spin(on, stream, times, into.spin);
    };
    co_await world_.native(spin);
    for (int i = 0; i < times; ++i) {
      const auto begin = now_ns();
      co_await world_.all_reduce(from_, into_, mw::sum);
      into.matched.add(us_since(begin));
    }
    const auto synchronize = [&](ncclComm_t on, cudaStream_t stream) {
      sum.synchronize(on, stream, times, into.synchronize);
    };
    co_await world_.native(synchronize);
  }

 private:
  const by_hand& cuda_;
  mw::world& world_;
  mw::device_buffer<float> from_;
  mw::device_buffer<float> into_;
};

fields row_of(const await_options& o, const way& how, std::size_t size,
              const figures& f) {
  const double spin = f.spin.median();
  return {
      {"bench", "await"},
      {"ranks", o.ranks},
      {"size", size},
      {"launch", name_of(how.launch)},
      {"completion", name_of(how.completion)},
      {"p50_us", f.unmatched.median()},
      {"p99_us", f.unmatched.p99()},
      {"matched_p50_us", f.matched.median()},
      {"matched_p99_us", f.matched.p99()},
      {"spin_p50_us", spin},
      {"spin_p99_us", f.spin.p99()},
      {"sync_p50_us", f.synchronize.median()},
      {"sync_p99_us", f.synchronize.p99()},
      {"over_spin_us", rounded(f.unmatched.median() - spin)},
      {"matched_over_spin_us", rounded(f.matched.median() - spin)},
      {"over_sync_us", rounded(f.unmatched.median() - f.synchronize.median())},
      {"operations", f.unmatched.count()},
  };
}

mw::task<void> run_way(gpu_member& g, const await_options& o, const way& how,
                       report& out) {
  mw::device_options options;
  options.launch = how.launch;
  options.completion = how.completion;
  const std::string name =
      fmt::format("await/{}/{}", name_of(how.launch), name_of(how.completion));
  mw::world w = g.describe(name, o.ranks, options);
  co_await w;
  co_await w.device_ready();
  for (const std::size_t size : o.sizes) {
    contest both(g, w, size);
    co_await both.prepare();
    figures unused;
    co_await both.round(std::max(1, o.operations / 10), unused);
    figures f;
    for (int round = 0; round < o.rounds; ++round) {
      co_await both.round(o.operations, f);
    }
    if (g.rank() == 0) g.row(out, row_of(o, how, size, f));
  }
  co_await w.leave();
}

mw::task<void> take_part(gpu_member& g, const await_options& o, report& out) {
  if (g.rank() == 0) g.tell(out);
  for (const way& how : ways) co_await run_way(g, o, how, out);
}

}  // namespace

void await(const common_options& common, const await_options& options) {
  gpu_member g(common, rank_in(common.role));
  report out(common.json, "nccl");
  std::vector<child> others;
  const int started = common.leads() ? options.ranks : 0;
  for (mw::rank_t rank = 1; rank < started; ++rank) others.push_back(g.start(rank));
  g.runtime().run(take_part(g, options, out));
}

}  // namespace mwbench
