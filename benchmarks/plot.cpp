#include "plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace mwbench {

namespace {

// --- the curves

struct curve_kind {
  std::string_view bench;
  std::string_view x;
  std::string_view y;
  /// Name of the vertical axis: curves of the same name share a panel.
  std::string_view unit;
  /// Label; empty: the program of the row.
  std::string_view label;
};

constexpr std::string_view half_us = "half a round trip, us";
constexpr std::string_view gb_s = "one way, GB/s";
constexpr curve_kind kinds[] = {
    {"p2p", "size", "p50_us", half_us, ""},
    {"p2p", "size", "limit_us", half_us, "raw limit"},
    {"p2p", "size", "raw_us", half_us, "raw limit"},
    {"p2p", "size", "gb_s", gb_s, ""},
    {"p2p", "size", "limit_gb_s", gb_s, "raw limit"},
    {"p2p", "size", "raw_gb_s", gb_s, "raw limit"},
    {"pairs", "size", "mean_us", half_us, ""},
    {"collectives", "size", "p50_us", "us", ""},
    {"worlds", "size", "one_us", "a message, us", "one world"},
    {"worlds", "size", "many_us", "a message, us", "many worlds"},
    {"worlds", "size", "raw_us", "a message, us", "raw limit"},
    {"scale", "worlds", "form_ms_each", "forming each, ms", ""},
    {"scale", "worlds", "ping_p50_us", half_us, ""},
    {"scale", "worlds", "own_kib_each", "KiB each", "own"},
    {"scale", "worlds", "shared_kib_each", "KiB each", "shared"},
    {"scale", "members", "form_ms", "forming, ms", ""},
    {"scale", "members", "barrier_p50_us", "barrier, us", ""},
    {"scale", "members", "segments_per_s", "segments sent a second", ""},
};

using points = std::map<double, double>;
using panel = std::map<std::string, points>;

std::string text_of(const fields& row, std::string_view name) {
  const auto found = row.find(name);
  if (found == row.end()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

/// Rows of different titles have panels of their own.
std::string title_of(const fields& row, const curve_kind& kind) {
  std::string title = text_of(row, "kind");
  if (title.empty()) title = kind.bench;
  if (kind.x != "members" && row.contains("members"))
    title += fmt::format(" of {}", text_of(row, "members"));
  if (kind.bench == "worlds") title += fmt::format(" ({})", text_of(row, "worlds"));
  for (const std::string_view name : {"transport", "memory"}) {
    if (row.contains(name)) title += ", " + text_of(row, name);
  }
  if (row.contains("views") && row["views"] != 1) title += ", in pieces";
  return title + ": " + std::string(kind.unit) + " by " + std::string(kind.x);
}

/// Of two points at one place the last counts.
void take(const fields& row, std::vector<std::pair<std::string, panel>>& panels) {
  for (const curve_kind& kind : kinds) {
    if (text_of(row, "bench") != kind.bench) continue;
    const auto x = row.find(kind.x);
    const auto y = row.find(kind.y);
    if (x == row.end() || y == row.end() || !x->is_number() || !y->is_number()) continue;
    if (x->get<double>() <= 0 || y->get<double>() <= 0) continue;
    std::string label(kind.label);
    if (label.empty()) label = row.contains("who") ? text_of(row, "who") : "manyworlds";
    const std::string title = title_of(row, kind);
    auto at = std::find_if(panels.begin(), panels.end(),
                           [&](const auto& each) { return each.first == title; });
    if (at == panels.end()) at = panels.insert(at, {title, panel()});
    at->second[label][x->get<double>()] = y->get<double>();
  }
}

// --- their drawing

constexpr double width = 460, height = 300;
constexpr double left = 60, top = 30, plot_width = 260, plot_height = 220;
constexpr const char* colours[] = {"#0b62c4", "#d1495b", "#2e933c", "#edae49",
                                   "#7a4ea3", "#00798c", "#6b4f3a", "#888888"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else
      out += c;
  }
  return out;
}

/// A logarithmic axis that begins and ends at powers of ten.
struct axis {
  double low = 1e300;
  double high = 0;

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void round_to_decades() {
    low = std::floor(std::log10(low));
    high = std::max(std::ceil(std::log10(high)), low + 1);
  }
  [[nodiscard]] double part(double value) const {
    return (std::log10(value) - low) / (high - low);
  }
};

std::string short_number(double value) {
  constexpr std::pair<double, const char*> units[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, name] : units) {
    if (value >= unit) return fmt::format("{:g}{}", value / unit, name);
  }
  return fmt::format("{:g}", value);
}

void draw_axes(std::string& svg, const axis& x, const axis& y) {
  for (double d = x.low; d <= x.high; ++d) {
    const double at = left + x.part(std::pow(10, d)) * plot_width;
    svg += fmt::format(
        "<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' stroke='#ddd'/>"
        "<text x='{0:.1f}' y='{3}' text-anchor='middle'>{4}</text>\n",
        at, top, top + plot_height, top + plot_height + 14,
        short_number(std::pow(10, d)));
  }
  for (double d = y.low; d <= y.high; ++d) {
    const double at = top + (1 - y.part(std::pow(10, d))) * plot_height;
    svg += fmt::format(
        "<line x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}' stroke='#ddd'/>"
        "<text x='{3}' y='{0:.1f}' dy='4' text-anchor='end'>{4}</text>\n",
        at, left, left + plot_width, left - 6, short_number(std::pow(10, d)));
  }
}

std::string drawn(const std::string& title, const panel& curves) {
  axis x, y;
  for (const auto& [label, of] : curves) {
    for (const auto& [at, value] : of) {
      x.take(at);
      y.take(value);
    }
  }
  x.round_to_decades();
  y.round_to_decades();
  std::string svg =
      fmt::format("<text x='8' y='16' font-weight='bold'>{}</text>\n", escaped(title));
  draw_axes(svg, x, y);
  std::size_t number = 0;
  for (const auto& [label, of] : curves) {
    const bool is_limit = label == "raw limit";
    const char* colour = is_limit ? "#333" : colours[number % std::size(colours)];
    std::string line, dots;
    for (const auto& [at, value] : of) {
      const double right = left + x.part(at) * plot_width;
      const double down = top + (1 - y.part(value)) * plot_height;
      line += fmt::format("{:.1f},{:.1f} ", right, down);
      dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>", right,
                          down, colour);
    }
    const double beside = top + 12 + 16 * static_cast<double>(number);
    svg += fmt::format(
        "<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5'{}/>{}"
        "<text x='{}' y='{}' fill='{}'>{}</text>\n",
        line, colour, is_limit ? " stroke-dasharray='4 3'" : "", dots,
        left + plot_width + 10, beside, colour, escaped(label));
    ++number;
  }
  return svg;
}

}  // namespace

void plot(const std::vector<fields>& rows, const std::string& file) {
  std::vector<std::pair<std::string, panel>> panels;
  for (const fields& row : rows) take(row, panels);
  if (panels.empty()) throw std::runtime_error("no row of the input makes a curve");
  const std::size_t columns = std::min<std::size_t>(panels.size(), 2);
  const std::size_t lines = (panels.size() + columns - 1) / columns;
  std::ofstream out(file);
  out << fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' font-size='11' "
      "font-family='sans-serif'>\n<rect width='{0}' height='{1}' fill='white'/>\n",
      width * static_cast<double>(columns), height * static_cast<double>(lines));
  for (std::size_t i = 0; i < panels.size(); ++i) {
    out << fmt::format("<g transform='translate({},{})'>\n{}</g>\n",
                       width * static_cast<double>(i % columns),
                       height * static_cast<double>(i / columns),
                       drawn(panels[i].first, panels[i].second));
  }
  out << "</svg>\n";
  if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

std::vector<fields> rows_of_files(const std::vector<std::string>& files) {
  std::vector<fields> rows;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with('{')) rows.push_back(fields::parse(line));
    }
  }
  return rows;
}

}  // namespace mwbench
