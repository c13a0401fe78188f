// ResNet-18 behind a leader with two workers, each in a world of its own. Alone it
// starts both and kills one with an image outstanding. The other worker classifies that
// image too, each image is answered once, and the classes are those of a run without
// workers. By hand: resnet --worldinfo 1,0 --worldinfo 2,0;  resnet --worldinfo 1,1;
// resnet --worldinfo 2,1. Or by a launcher: mpirun -n 3 resnet
#include <algorithm>
#include <optional>

#include "resnet/model.hpp"
#include "shared/tensor.hpp"
#include "shared/terminal.hpp"

namespace {

constexpr uint64_t seed = 18;

/// Runs a worker until the leader leaves.
mw::task<void> work(mw::runtime& rt, const arguments& given) {
  stores through(rt, given);
  const membership m = given.worlds.front();
  resnet model(seed);
  mw::worker_thread engine("mw-engine");  // the world lives on while it computes
  const tensor_memory memory(given.on_gpus() ? given.device : -1);
  const auto answer = [&](mw::world& w) -> mw::task<void> {
    tensor came(floats_in_image, memory);
    for (;;) {
      co_await came.recv(w, mw::from{0});
      const pixels x(came.values().begin(), came.values().end());
      const int64_t found =
          co_await mw::offload(engine, [&] { return model.classify(x); });
      co_await w.send_message(found, mw::to{0});
    }
  };
  mw::task<void> kept = mw::keep(rt, through.of(m), given.world({m.world, 1}, 2),
                                 telling(given, "worker", answer));
  co_await std::move(kept);
}

class leader {
 public:
  leader(mw::runtime& rt, const arguments& given, std::size_t images)
      : runtime_(rt),
        given_(given),
        through_(rt, given),
        memory_(given.on_gpus() ? given.device : -1),
        images_(images),
        answers_(images) {
    for (std::size_t i = 0; i < images; ++i) (void)images_.try_push(i);
  }
  /// It is killed when it has received its third image and has not answered.
  void kill_on_the_way(int world, process& worker) {
    victim_ = world;
    worker_ = &worker;
  }

  /// Ends when all images are answered.
  mw::task<void> run() {
    const auto all = [this](mw::scope& s) -> mw::task<void> {
      for (const membership& m : given_.worlds) s.spawn(use(m));
      co_await all_left_;
      s.cancel();  // ends the wait for a dead worker
    };
    co_await mw::scope::run(all);
  }

  [[nodiscard]] bool compare() const {
    fmt::print("all images again, without workers\n");
    resnet model(seed);
    std::size_t not_once = 0, differ = 0;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      const int64_t right = model.classify(image(static_cast<int64_t>(i)));
      not_once += answers_[i].size() != 1;
      differ += std::count(answers_[i].begin(), answers_[i].end(), right) == 0;
    }
    fmt::print("{} images, {} not answered once, {} of another class\n", answers_.size(),
               not_once, differ);
    return not_once + differ == 0;
  }

 private:
  mw::task<void> use(membership m) {
    const auto body = [this, &m](mw::world& w) -> mw::task<void> {
      ++up_;
      const auto ended = co_await mw::outcome(ask_in_turn(w, m));
      if (ended) (void)co_await mw::outcome(w.leave());
      if (--up_ == 0 && answered_ == answers_.size()) all_left_.set();
      if (!ended) throw mw::world_error(ended.error());
    };
    mw::task<void> kept =
        mw::keep(runtime_, through_.of(m), given_.world({m.world, 0}, 2),
                 telling(given_, "leader", body));
    co_await std::move(kept);
  }

  mw::task<void> ask_in_turn(mw::world& w, const membership& m) {
    for (int asked = 1; const auto number = co_await images_.pop(); ++asked) {
      const auto found = co_await mw::outcome(classify(w, *number, m.world, asked));
      if (!found) {
        (void)images_.try_push(*number);  // there is room: it came from there
        fmt::print("image {} goes to another worker\n", *number);
        throw mw::world_error(found.error());
      }
      fmt::print("image {:>2}: class {}, says the worker of {}\n", *number, *found,
                 m.name());
      answers_[*number].push_back(*found);
      if (++answered_ == answers_.size()) images_.close();
    }
  }

  mw::task<int64_t> classify(mw::world& w, std::size_t number, int world, int asked) {
    const pixels shown = image(static_cast<int64_t>(number));
    tensor x(shown.size(), memory_);
    std::ranges::copy(shown, x.values().begin());
    co_await x.send_delivered(w, mw::to{1});
    if (world == victim_ && asked == 3) {
      fmt::print("kill -9 {}, which has image {}\n", worker_->pid(), number);
      worker_->signal(SIGKILL);
    }
    co_return (co_await w.recv_message<int64_t>(mw::from{1})).head;
  }

  mw::runtime& runtime_;
  const arguments& given_;
  stores through_;
  const tensor_memory memory_;
  mw::channel<std::size_t> images_;
  std::vector<std::vector<int64_t>> answers_;
  std::size_t answered_ = 0;
  int up_ = 0, victim_ = -1;
  process* worker_ = nullptr;
  mw::event all_left_;
};

bool lead(mw::runtime& rt, arguments& given, std::size_t images) {
  std::optional<mw::hosted_store> host;
  std::vector<process> workers;
  if (given.worlds.empty()) {
    given.store = host.emplace(rt, "127.0.0.1:0").address();
    given.worlds = {{1, 0}, {2, 0}};
    for (const char* who : {"1,1", "2,1"}) {
      workers.push_back(given.start({"--worldinfo", who}, who[0] - '0', 3));
      fmt::print("the worker of world{} is pid {}\n", who[0], workers.back().pid());
    }
  }
  leader l(rt, given, images);
  if (!workers.empty()) l.kill_on_the_way(1, workers[0]);
  rt.run(l.run());
  return l.compare();
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Images, classified by two workers.");
  arguments given(app);
  std::size_t images = 16;
  app.add_option("--images", images, "number of images")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  given.ask_launcher({{{1, 0}, {2, 0}}, {{1, 1}}, {{2, 1}}});
  mw::runtime rt(given.runtime());
  rt.serve_dumps();  // for mwstat
  if (given.worlds.empty() || given.worlds.front().rank == 0)
    return lead(rt, given, images) ? 0 : 1;
  rt.run(work(rt, given));
} catch (const std::exception& e) {
  fmt::print(stderr, "resnet: {}\n", e.what());
  return 1;
}
