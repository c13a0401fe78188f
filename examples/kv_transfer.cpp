// Prefill to decode: a request's KV blocks go layer by layer from one process's pages
// to the other's, in host memory or on GPUs. Half of the requests are given up at
// random moments. Prefill is killed in between and started again; no page is lost. By a
// launcher: mpirun -n 2 kv_transfer
#include "kv_transfer/decode.hpp"
#include "shared/terminal.hpp"

namespace {

template <class Pages>
class member {
 public:
  member(mw::runtime& rt, const arguments& given, plan p)
      : runtime_(rt), given_(given), plan_(p) {
    if (given.backend == "nccl") devices_ = mw::device_count();
  }

  bool start_all() {
    process prefill = start_prefill();
    decoder<Pages> decode(device_of(1), plan_);
    const auto script = [&]() -> mw::task<void> {
      while (decode.over() < plan_.requests / 2) co_await mw::sleep_for(1ms);
      fmt::print("kill -9 {}, prefill, with {} requests open\n", prefill.pid(),
                 decode.open());
      prefill.signal(SIGKILL);
      (void)prefill.join();
      prefill = start_prefill();
    };
    const bool is_right = run(decode, {1, 1}, script);
    const process::ending ended = prefill.join();
    return is_right && ended.signal == 0 && ended.status == 0;
  }

  /// Runs one of the two processes, started by hand.
  bool run_alone(membership m) {
    if (m.rank == 0) {
      prefiller<Pages> prefill(device_of(0));
      const auto nothing = []() -> mw::task<void> { co_return; };
      return run(prefill, m, nothing);
    }
    decoder<Pages> decode(device_of(1), plan_);
    const auto tell = [&]() -> mw::task<void> {
      while (decode.over() < plan_.requests) {
        fmt::print("decode: {} of {} requests are over\n", decode.over(), plan_.requests);
        co_await mw::sleep_for(1s);
      }
    };
    return run(decode, m, tell);
  }

 private:
  [[nodiscard]] int device_of(int rank) const {
    return devices_ > 0 ? rank % devices_ : -1;
  }
  [[nodiscard]] process start_prefill() const {
    // NCCL refuses two ranks on one GPU, unless they seem to be of two hosts.
    std::vector<std::string> words{"--worldinfo", "1,0",       "--store",
                                   given_.store,  "--backend", given_.backend};
    given_.network.hand_on(words);
    process p(words, devices_ == 1 ? "NCCL_HOSTID=prefill" : "");
    fmt::print("prefill is pid {}\n", p.pid());
    return p;
  }

  template <class Side, class Beside>
  bool run(Side& side, const membership& m, Beside& beside) {
    stores through(runtime_, given_);
    mw::world_options options{.name = m.name(), .rank = m.rank, .size = 2};
    options.device = device_of(m.rank);
    if (options.device >= 0) options.backend = mw::backend_kind::nccl;
    const auto body = [&side](mw::world& w) { return side.run(w); };
    const auto both = [&]() -> mw::task<void> {
      mw::task<void> kept =
          mw::keep(runtime_, through.of(m), options,
                   telling(given_, m.rank == 0 ? "prefill" : "decode", body));
      co_await mw::when_all(std::move(kept), beside());
    };
    runtime_.run(both());
    side.tell();
    return side.is_right();
  }

  mw::runtime& runtime_;
  const arguments& given_;
  const plan plan_;
  int devices_ = 0;
};

template <class Pages>
bool run(arguments& given, const plan& p) {
  mw::runtime rt(given.runtime());
  rt.serve_dumps();  // for mwstat
  if (!given.worlds.empty())
    return member<Pages>(rt, given, p).run_alone(given.worlds.front());
  const mw::hosted_store host(rt, "127.0.0.1:0");
  given.store = host.address();
  given.worlds = {{1, 1}};
  fmt::print("decode: {} requests, {} at a time; the seed is {}\n", p.requests, at_a_time,
             p.seed);
  return member<Pages>(rt, given, p).start_all();
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("KV blocks, layer by layer, given up at any moment.");
  arguments given(app);
  plan p;
  app.add_option("--requests", p.requests, "number of requests by decode")
      ->capture_default_str();
  app.add_option("--seed", p.seed, "seed of which requests are given up, and when")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  given.ask_launcher({{{1, 0}}, {{1, 1}}});
  return (given.backend == "nccl" ? run<gpu_pages>(given, p) : run<host_pages>(given, p))
             ? 0
             : 1;
} catch (const std::exception& e) {
  fmt::print(stderr, "kv_transfer: {}\n", e.what());
  return 1;
}
