// Tensor parallelism: a controller decodes with a Llama-style model that four processes
// of this program share. As it decodes one is killed, one throws and one is stopped. The
// step that hurts fails and names the worker, the worker comes back with its weights, and
// the tokens are those of one process. A second session beside it goes on.
//
//     tensor_parallel              // each layer divided among four workers
//     tensor_parallel --stages 2   // two stages of two workers each
//     tensor_parallel --backend nccl  // weights and collectives on four GPUs
//     tensor_parallel --no-faults  // kill -9, -STOP or -USR1 the pids that it prints
//
// With --json it prints one object, and nothing else.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tensor_parallel/bystander.hpp"
#include "tensor_parallel/model.hpp"
#include "tensor_parallel/reference.hpp"
#include "tensor_parallel/show.hpp"
#include "tensor_parallel/weights.hpp"
#include "tensor_parallel/worker.hpp"
using namespace std::chrono_literals;

namespace {

constexpr int prompt_tokens = 8;

/// A folder that is gone with this.
class temporary_folder {
 public:
  temporary_folder()
      : path_((std::filesystem::temp_directory_path() / "tensor_parallel.XXXXXX")
                  .string()) {
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error("no folder can be made at " + path_);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// The tokens before the first one that is decoded.
std::vector<int> prompt_of(const model_config& of, unsigned seed) {
  std::vector<int> prompt;
  for (int i = 0; i < prompt_tokens; ++i)
    prompt.push_back(static_cast<int>((seed * 37 + static_cast<unsigned>(i) * 61) %
                                      static_cast<unsigned>(of.tokens)));
  return prompt;
}

void print(const show_wishes& w, const show& s, const bystander& other, int wrong) {
  const auto ms = [](const std::optional<mw::duration>& d) {
    return d ? nlohmann::ordered_json(ms_of(*d)) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json all = {{"tokens", w.tokens},
                                {"wrong", wrong},
                                {"detect_ms", nullptr},
                                {"respawn_ms", nullptr},
                                {"other_max_gap_ms", ms_of(other.longest_gap())},
                                {"stopped_detect_ms", nullptr},
                                {"threw_detect_ms", nullptr},
                                {"other_steps", other.steps()},
                                {"other_lost", other.error().empty() ? 0 : 1},
                                {"stages", w.stages}};
  nlohmann::ordered_json& faults = all["faults"] = nlohmann::ordered_json::array();
  for (const incident& each : s.incidents()) {
    if (each.what == "killed") {
      all["detect_ms"] = ms(each.detected_after);
      all["respawn_ms"] = ms(each.back_after);
    } else if (!each.what.empty()) {
      all[each.what + "_detect_ms"] = ms(each.detected_after);
    }
    faults.push_back({{"step", each.step},
                      {"worker", each.worker},
                      {"what", each.what},
                      {"error", each.error},
                      {"detect_ms", ms(each.detected_after)},
                      {"respawn_ms", ms(each.back_after)}});
  }
  if (w.json) {
    fmt::print("{}\n", all.dump());
    return;
  }
  std::string times;
  for (const char* key :
       {"detect_ms", "threw_detect_ms", "stopped_detect_ms", "respawn_ms"})
    if (all[key].is_number())
      times += fmt::format("{} {:.1f}, ", key, all[key].get<double>());
  fmt::print("tokens {}, wrong {}, {}other_max_gap_ms {:.1f} in {} steps\n", w.tokens,
             wrong, times, ms_of(other.longest_gap()), other.steps());
}

mw::task<int> run(mw::runtime& rt, const show_wishes& w,
                  const mw::process_options& program) {
  const model_config of;
  const temporary_folder folder;
  const std::string path = folder.path() + "/model.safetensors";
  write_weights(path, of, w.seed);
  const reference expected =
      co_await reference::make(of, path, prompt_of(of, w.seed), w.tokens);

  mw::processes four{.workers = 4, .how = &program};
  four.limits.name = "four";
  four.limits.suspect_after = 300ms;
  four.limits.lost_after = 2s;  // one that is stopped
  four.limits.backend = w.backend;
  mw::session session = co_await mw::session::start(rt, four);
  mw::processes two{.workers = 2, .how = &program};
  two.limits.name = "two";
  two.limits.backend = w.backend;
  mw::session beside = co_await mw::session::start(rt, two);

  show s(w, session, of);
  bystander other(beside, of);
  bool is_over = false;
  const auto decode = [&]() -> mw::task<void> {
    co_await s.run(expected, path);
    is_over = true;
  };
  co_await mw::when_all(decode(), other.run(expected, path, is_over));
  co_await session.close();
  co_await beside.close();
  const int wrong = s.wrong() + other.wrong();
  if (!other.error().empty())
    fmt::print(stderr, "the session beside it has lost a step: {}\n", other.error());
  if (!s.all_named()) fmt::print(stderr, "a fault was not noticed\n");
  print(w, s, other, wrong);
  co_return wrong == 0 && other.error().empty() && s.all_named() ? 0 : 1;
}

/// Ends all when a signal comes.
mw::task<int> run_until_told(mw::runtime& rt, const show_wishes& w,
                             const mw::process_options& program,
                             mw::task<mw::received_signal> told) {
  const auto [code, came] = co_await mw::when_any(run(rt, w, program), std::move(told));
  co_return code ? *code : 128 + came->number;
}

int control(const show_wishes& w) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  mw::process_guard guard;  // before any thread
  auto told = mw::until_signal({SIGTERM, SIGINT});
  mw::runtime rt({.log_from = mw::log_level::silent});
  mw::process_options program(std::filesystem::read_symlink("/proc/self/exe").string());
  program.guarded_by(guard);
  if (!w.log) program.errors(mw::process_output::none());
  return rt.run(run_until_told(rt, w, program, std::move(told)));
}

}  // namespace

int main(int count, char** words) {
  if (is_worker()) return run_worker(count, words);
  show_wishes w;
  CLI::App app("Decodes on four workers, which are killed, throw and stop meanwhile.");
  app.add_option("--tokens", w.tokens, "how many are decoded")
      ->capture_default_str()
      ->check(CLI::Range(16, 200));
  app.add_option("--stages", w.stages, "of a pipeline, which divide the layers")
      ->capture_default_str()
      ->check(CLI::IsMember({1, 2, 4}));
  app.add_option("--backend", w.backend, "host, or nccl: each worker has a GPU")
      ->transform(CLI::CheckedTransformer(std::map<std::string, mw::backend_kind>{
          {"host", mw::backend_kind::host}, {"nccl", mw::backend_kind::nccl}}));
  app.add_option("--seed", w.seed, "of the weights")->capture_default_str();
  CLI::Option* const pause = app.add_option("--pause", w.pause_s,
                                            "seconds between two tokens; 0.5 with "
                                            "--no-faults");
  app.add_flag("--no-faults", w.no_faults, "kill the printed pids yourself");
  app.add_flag("--json", w.json, "print one object and nothing else");
  app.add_flag("--log", w.log, "print what the workers log");
  CLI11_PARSE(app, count, words);
  if (w.no_faults && pause->count() == 0) w.pause_s = 0.5;
  try {
    return control(w);
  } catch (const std::exception& e) {
    fmt::print(stderr, "tensor_parallel: {}\n", e.what());
    return 1;
  }
}
