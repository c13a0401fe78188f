// Stages of a pipeline: each is a process, each edge a world of two, as a diamond or a
// mesh. Alone it kills a stage with requests in flight, and starts it again. Its
// requests go another way, each request is answered once, and only the worlds beside it
// break. By a launcher: mpirun -n 4 pipeline;  mpirun -n 7 pipeline --shape mesh
#include "pipeline/source.hpp"

namespace {

struct part {
  std::string stage;
  std::vector<membership> worlds;
};
struct shape {
  std::vector<part> parts;  ///< the first is the source
  std::string victim, beside_it;
  std::uint32_t stages;
};

//        / 0-0 \            .
//  s ---<       >--- 1 --- s
//        \ 0-1 /
const shape diamond{{{"s", {{1, 0}, {2, 0}, {5, 1}}},
                     {"0-0", {{1, 1}, {3, 0}}},
                     {"0-1", {{2, 1}, {4, 0}}},
                     {"1", {{3, 1}, {4, 1}, {5, 0}}}},
                    "0-1",
                    "0-0",
                    2};

// Three layers of two, each stage with an edge to both of the next layer.
const shape mesh{{{"s", {{1, 0}, {2, 0}, {11, 1}, {12, 1}}},
                  {"0-0", {{1, 1}, {3, 0}, {4, 0}}},
                  {"0-1", {{2, 1}, {5, 0}, {6, 0}}},
                  {"1-0", {{3, 1}, {5, 1}, {7, 0}, {8, 0}}},
                  {"1-1", {{4, 1}, {6, 1}, {9, 0}, {10, 0}}},
                  {"2-0", {{7, 1}, {9, 1}, {11, 0}}},
                  {"2-1", {{8, 1}, {10, 1}, {12, 0}}}},
                 "1-0",
                 "1-1",
                 3};

class demo {
 public:
  demo(mw::runtime& rt, const arguments& given, const shape& of)
      : of_(of), given_(given), source_(rt, given, of.stages) {
    for (const part& p : of.parts) {
      if (p.stage != "s") start(p);
    }
  }

  bool run(mw::runtime& rt) {
    const auto both = [this]() -> mw::task<void> {
      co_await mw::when_all(source_.run(), script());
    };
    rt.run(both());
    bool is_right = source_.is_right() && went_round_ && came_back_;
    for (auto& [name, p] : processes_) {
      const process::ending e = p.join();
      is_right = is_right && e.status == 0 && e.signal == 0;
    }
    fmt::print("s: {}\n", source_.summary());
    return is_right;
  }

 private:
  void start(const part& p) {
    std::vector<std::string> its{"--stage", p.stage};
    for (const membership& m : p.worlds)
      its.insert(its.end(), {"--worldinfo", fmt::format("{},{}", m.world, m.rank)});
    const auto index = static_cast<int>(&p - of_.parts.data());
    processes_[p.stage] = given_.start(its, index, static_cast<int>(of_.parts.size()));
    fmt::print("s: stage {} is pid {}, with {}\n", p.stage, processes_[p.stage].pid(),
               fmt::join(std::vector(its.begin() + 2, its.end()), " "));
  }

  mw::task<void> script() {
    process& victim = processes_[of_.victim];
    // All its worlds are up by then. Should one never be, the demo tells it.
    const auto worlds =
        std::ranges::find(of_.parts, of_.victim, &part::stage)->worlds.size();
    const auto came_over_all = [&] {
      return static_cast<std::size_t>(source_.edges_of(of_.victim)) == worlds;
    };
    for (int i = 0; i < 10'000 && !came_over_all(); ++i) co_await mw::sleep_for(1ms);
    if (!came_over_all()) fmt::print("s: an edge of {} is not used\n", of_.victim);
    co_await traffic("before the kill");
    fmt::print("s: kill -9 {}, stage {}; {} requests are open\n", victim.pid(),
               of_.victim, source_.open());
    victim.signal(SIGKILL);
    (void)victim.join();
    went_round_ = co_await traffic("without the stage") > 0;
    start(*std::ranges::find(of_.parts, of_.victim, &part::stage));
    const auto before = source_.via(of_.victim);
    for (int i = 0; i < 1000 && source_.via(of_.victim) == before; ++i)
      co_await mw::sleep_for(10ms);
    (void)co_await traffic("with the stage again");
    came_back_ = source_.via(of_.victim) > before;
    source_.stop();
  }

  /// Waits for 500 more answers; returns how many went beside the victim.
  mw::task<std::uint64_t> traffic(const char* when) {
    const auto answered = source_.answered(), it = source_.via(of_.victim),
               beside = source_.via(of_.beside_it);
    while (source_.answered() < answered + 500) co_await mw::sleep_for(1ms);
    fmt::print("s: {}: {} answers, {} by {}, {} by {}\n", when,
               source_.answered() - answered, source_.via(of_.victim) - it, of_.victim,
               source_.via(of_.beside_it) - beside, of_.beside_it);
    co_return source_.via(of_.beside_it) - beside;
  }

  const shape& of_;
  const arguments& given_;
  std::map<std::string, process> processes_;
  source source_;
  bool went_round_ = false, came_back_ = false;
};

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("A pipeline with worlds as its edges.");
  std::string name = "s", form = "diamond";
  arguments given(app);
  app.add_option("--stage", name, "name of this stage; \"s\" is the source");
  app.add_option("--shape", form)->check(CLI::IsMember({"diamond", "mesh"}));
  CLI11_PARSE(app, argc, argv);
  const shape& of = form == "mesh" ? mesh : diamond;
  std::vector<std::vector<membership>> places;
  for (const part& p : of.parts) places.push_back(p.worlds);
  given.ask_launcher(places);
  if (given.job) name = of.parts[static_cast<std::size_t>(given.job->rank)].stage;

  mw::runtime rt(given.runtime());
  rt.serve_dumps();  // for mwstat
  if (name != "s") {
    stage s(rt, given, name);
    rt.run(s.run());
    return 0;
  }
  if (!given.worlds.empty()) {
    source s(rt, given, of.stages);
    const auto both = [&]() -> mw::task<void> {
      co_await mw::when_all(s.run(), s.tell_each_second());
    };
    rt.run(both());
    return 0;
  }
  const mw::hosted_store host(rt, "127.0.0.1:0");
  given.store = host.address();
  given.worlds = of.parts.front().worlds;
  return demo(rt, given, of).run(rt) ? 0 : 1;
} catch (const std::exception& e) {
  fmt::print(stderr, "pipeline: {}\n", e.what());
  return 1;
}
