#include "graph_roles.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <manyworlds/mpmd.hpp>
#include <manyworlds/mw.hpp>

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

constexpr auto time_to_load = 1s;
constexpr auto time_to_answer = 10ms;
constexpr int answers_of_step = 12;

template <class Body>
int play(const Body& body) {
  mw::role_context self;
  mw::runtime rt(self.runtime());
  return self.run(rt, [&](mw::scope& s) { return body(self, s); });
}

/// Adds stamps to those of earlier incarnations.
class stamp_file {
 public:
  explicit stamp_file(const std::string& name)
      : file_(name, std::ios::binary | std::ios::app) {}
  void stamp() {
    const steady::rep now = steady::now().time_since_epoch().count();
    file_.write(reinterpret_cast<const char*>(&now), sizeof now).flush();
  }

 private:
  std::ofstream file_;
};

mw::task<void> ask_once(mw::role_group& of) {
  co_await of.any("generate", "", {.within = 60s, .may_repeat = true});
}

mw::task<void> make_step(mw::role_group& of) {
  const auto body = [&of](mw::scope& s) -> mw::task<void> {
    for (int n = 0; n < answers_of_step; ++n) s.spawn(ask_once(of));
    co_return;
  };
  co_await mw::scope::run(body);
}

mw::task<void> exchange(mw::world& w, stamp_file& stamps) {
  const mw::rank_t peer = 1 - w.rank();
  for (std::uint64_t count = 0;; ++count) {
    std::uint64_t theirs = 0;
    co_await w.send(mw::object(count), mw::to{peer});
    co_await w.recv(mw::object(theirs), mw::from{peer});
    if (w.rank() == 0) stamps.stamp();
    co_await mw::sleep_for(1ms);
  }
}

}  // namespace

int step_once(const std::string& folder) {
  return play([&](mw::role_context& self, mw::scope&) -> mw::task<void> {
    self.ready();
    const std::string name =
        fmt::format("{}/{}.{}", folder, self.instance().text(), self.incarnation);
    std::ofstream(name + ".new")
        << ::getpid() << ' ' << steady::now().time_since_epoch().count();
    std::filesystem::rename(name + ".new", name);
    co_await self.leaving();
  });
}

int generate() {
  mw::role_methods answers;
  answers.on("generate", [](mw::role_call&) -> mw::task<std::string> {
    co_await mw::sleep_for(time_to_answer);
    co_return "";
  });
  return play([&](mw::role_context& self, mw::scope& s) -> mw::task<void> {
    co_await mw::sleep_for(time_to_load);
    s.spawn(self.serve("generate", answers));
    self.ready();
    co_await self.leaving();
  });
}

int train(const std::string& file) {
  stamp_file stamps(file);
  mw::role_group::options one_at_once;
  one_at_once.at_once = 1;
  mw::role_group rollouts(one_at_once);
  return play([&](mw::role_context& self, mw::scope& s) -> mw::task<void> {
    const auto steps = [&](mw::scope& inner) -> mw::task<void> {
      inner.spawn(self.ask("generate", rollouts));
      self.ready();
      for (;;) {
        co_await make_step(rollouts);
        stamps.stamp();
      }
    };
    s.spawn(mw::scope::run(steps));
    co_await self.leaving();
  });
}

int beat(const std::string& file) {
  stamp_file stamps(file);
  return play([&](mw::role_context& self, mw::scope& s) -> mw::task<void> {
    s.spawn(self.each("beat", [&](mw::world& w) { return exchange(w, stamps); }));
    self.ready();
    co_await self.leaving();
  });
}

stamps read_stamps(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  stamps all;
  for (steady::rep when = 0; file.read(reinterpret_cast<char*>(&when), sizeof when);)
    all.emplace_back(steady::duration(when));
  return all;
}
