// The summary that the demo prints at its end.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "demo.hpp"

/// Returns a figure of the last line; null if the run did not measure it.
inline nlohmann::json measured_ms(double ms) {
  return ms < 0 ? nlohmann::json() : nlohmann::json(std::round(ms * 1000) / 1000);
}

/// Returns a flag; null if the backend does not have it.
inline nlohmann::json only_if(bool applies, bool value) {
  return applies ? nlohmann::json(value) : nlohmann::json();
}

inline bool demo::summarize() {
  double healthy_gap_ms = 0;
  std::uint64_t healthy_lost = 0;
  for (edge& e : edges_) {
    healthy_gap_ms = std::max(healthy_gap_ms, in_ms(e.longest_gap));
    // A death without a known cause counts as a loss.
    if (plan_.hurts && e.died) ++e.lost;
    healthy_lost += e.lost;
  }
  const std::uint64_t open = requests_.asked() - requests_.answered();
  const bool on_gpus = plan_.devices > 0;
  const nlohmann::ordered_json line = {
      {"backend", on_gpus ? "nccl" : "host"},
      {"healthy_lost", healthy_lost},
      {"healthy_max_gap_ms", measured_ms(healthy_gap_ms)},
      {"gap_before_faults_ms", measured_ms(gap_before_ms_)},
      {"detect_ms", measured_ms(figures_.detect_ms)},
      {"suspect_ms", measured_ms(figures_.suspect_ms)},
      {"reform_ms", measured_ms(figures_.reform_ms)},
      {"cancel_ms", measured_ms(figures_.cancel_ms)},
      {"cancelled_half_way", only_if(!on_gpus, figures_.was_cancelled_half_way)},
      {"withdrawn", only_if(on_gpus, figures_.was_withdrawn)},
      {"buffer_reusable", figures_.is_whole_after_cancel},
      {"requests", requests_.asked()},
      {"answered", requests_.answered()},
      {"sent", requests_.sent()},
      {"retried", requests_.retried()},
      {"twice", requests_.twice()},
  };
  if (plan_.as_json) std::printf("%s\n", line.dump().c_str());

  std::string text = fmt::format(
      "\n  requests: {} asked, {} answered, {} unanswered; {} sent, of them {} again; {} "
      "answered twice\n\n"
      "  world    answers   lost while healthy   longest gap while healthy\n",
      requests_.asked(), requests_.answered(), open, requests_.sent(),
      requests_.retried(), requests_.twice());
  for (const edge& e : edges_) {
    text += fmt::format("  {:<6} {:>9} {:>20} {:>24.1f} ms\n", e.name, e.answers, e.lost,
                        in_ms(e.longest_gap));
  }
  if (gap_before_ms_ > 0) {
    text += fmt::format(
        "  Before the first fault the longest gap was {:.1f} ms: the processes share {} "
        "processors.\n\n",
        gap_before_ms_, std::thread::hardware_concurrency());
  }
  if (figures_.reform_ms >= 0) {
    text += fmt::format(
        "  kill -9     noticed by a's coroutines after {:.2f} ms; a answers again after "
        "{:.0f} ms\n",
        figures_.detect_ms, figures_.reform_ms);
  }
  if (figures_.heard_again_ms >= 0) {
    text += fmt::format(
        "  kill -STOP  b is suspect after {:.0f} ms; it answers {:.1f} ms after kill "
        "-CONT\n",
        figures_.suspect_ms, figures_.heard_again_ms);
  }
  if (figures_.was_cancelled_half_way || figures_.was_withdrawn) {
    text += fmt::format(
        "  cancel      the waiter resumes {:.2f} ms after its deadline; c stays up\n",
        figures_.cancel_ms);
  }
  out_.print(text);
  return open == 0 && healthy_lost == 0;
}
