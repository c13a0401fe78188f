// A soak: processes in many worlds, hurt at random, and what all of them have seen
// checked.
//
//   soak [seed=N] [seconds=S] [processes=P] [worlds=W] [records=FOLDER] [show=plan]
//
// The plan is a function of the seed; how the processes interleave is not. Longer ones
// are cut into rounds, each with the next seed. The first words "member" and "store" are
// for the processes that it starts.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

#include "manyworlds/serve/hosted_store.hpp"
#include "soak/director.hpp"
#include "soak/member.hpp"
#include "soak/verdict.hpp"

namespace manyworlds_tests::soak {

namespace {

constexpr mw::duration longest_round = 300s;

/// KEY=VALUE, for the soak also as --KEY VALUE.
class arguments {
 public:
  arguments(int first, int count, char** words) {
    for (int i = first; i < count; ++i) {
      std::string word = words[i];
      if (word.starts_with("--") && i + 1 < count) {
        word = word.substr(2) + "=" + words[++i];
      }
      const auto at = word.find('=');
      if (at == std::string::npos) throw std::invalid_argument("soak: what is " + word);
      values_[word.substr(0, at)] = word.substr(at + 1);
    }
  }
  [[nodiscard]] std::string text(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? "" : found->second;
  }
  [[nodiscard]] std::uint64_t number(const std::string& key,
                                     std::uint64_t otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : std::stoull(found->second);
  }

 private:
  std::map<std::string, std::string> values_;
};

member_settings member_of(const arguments& given) {
  member_settings s;
  s.of.seed = given.number("seed", 0);
  s.of.span = mw::duration(static_cast<std::int64_t>(given.number("span", 0)));
  s.of.processes = given.number("processes", 0);
  s.of.worlds = given.number("worlds", 0);
  s.slot = given.number("slot", 0);
  s.life = given.number("life", 0);
  s.begin =
      mw::time_point(mw::duration(static_cast<std::int64_t>(given.number("begin", 0))));
  s.store = given.text("store");
  s.records = given.text("records");
  return s;
}

int run_store() {
  mw::runtime rt;
  const mw::hosted_store store(rt, "127.0.0.1:0");
  std::puts(store.address().c_str());
  std::fflush(stdout);
  // Until it is killed.
  for (;;) ::pause();
}

double milliseconds(mw::duration d) { return static_cast<double>(d.count()) / 1e6; }

void tell(const settings& s, figures f) {
  fmt::print(
      "seed {}: {} operations, {} messages, {:.1f} MB; {} epochs, {} views; {} kills, {} "
      "stops, {} broken by plan\n",
      s.seed, f.operations, f.messages, static_cast<double>(f.bytes) / 1e6, f.epochs,
      f.views, f.kills, f.stops, f.fails);
  fmt::print("  ended otherwise:");
  for (const auto& [cause, times] : f.errors) fmt::print(" {} {}", cause, times);
  fmt::print("\n");
  if (!f.notices.empty()) {
    std::sort(f.notices.begin(), f.notices.end());
    fmt::print("  from a kill to the error: median {:.1f} ms, longest {:.1f} ms\n",
               milliseconds(f.notices[f.notices.size() / 2]),
               milliseconds(f.notices.back()));
  }
  fmt::print("  longest gap of an undisturbed world: {:.1f} ms\n",
             milliseconds(f.longest_gap));
}

bool run_round(const settings& s, const std::string& folder) {
  const plan p = plan_of(s);
  course c;
  {
    director d(s, folder);
    c = d.run();
  }
  verdict v(p, c);
  v.judge();
  tell(s, v.counted());
  if (v.complaints().empty()) return true;
  for (const std::string& complaint : v.complaints()) fmt::print("  {}\n", complaint);
  fmt::print("  what was done:\n");
  for (const planned_fault& f : p.faults) fmt::print("  {}\n", text(f));
  fmt::print(
      "seed {} fails; its records are in {}\n"
      "replay its plan (not how its processes interleave): soak --seed {} --seconds {} "
      "--processes {} --worlds {}\n",
      s.seed, folder, s.seed, s.span / 1s, s.processes, s.worlds);
  return false;
}

std::string new_folder(const arguments& given) {
  std::filesystem::path in = given.text("records");
  if (in.empty()) in = std::filesystem::temp_directory_path();
  std::filesystem::create_directories(in);
  std::string folder = in / "soak-XXXXXX";
  if (!::mkdtemp(folder.data())) throw std::runtime_error("soak: no folder for records");
  return folder;
}

int run_all(const arguments& given) {
  settings s;
  s.seed = given.number("seed", s.seed);
  s.processes = std::max<std::size_t>(given.number("processes", s.processes), 2);
  s.worlds = std::max<std::size_t>(given.number("worlds", s.worlds), 1);
  mw::duration left =
      std::chrono::seconds(std::max<std::uint64_t>(given.number("seconds", 60), 30));
  for (; left > 0s; ++s.seed) {
    // No round is too short for anything to happen in it.
    s.span = left < longest_round + 30s ? left : longest_round;
    left -= s.span;
    if (given.text("show") == "plan") {
      for (const planned_fault& f : plan_of(s).faults) fmt::print("{}\n", text(f));
      continue;
    }
    const std::string folder = new_folder(given);
    if (!run_round(s, folder)) return 1;
    std::filesystem::remove_all(folder);
  }
  return 0;
}

}  // namespace

}  // namespace manyworlds_tests::soak

int main(int argc, char** argv) {
  namespace soak = manyworlds_tests::soak;
  // Nothing of it outlives who started it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "store") return soak::run_store();
    if (mode == "member")
      return soak::run_member(soak::member_of(soak::arguments(2, argc, argv)));
    return soak::run_all(soak::arguments(1, argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
