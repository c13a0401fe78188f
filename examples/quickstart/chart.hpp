// The demo's chart: the rates of its worlds over time, with the faults and the returns
// marked, as an SVG.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Says what a mark of the chart means: something was done to a world, the world has
/// noticed it, or it answers again.
enum class mark_kind { fault, notice, back };

/// Collects rates and marks, and draws a strip for each world. All strips share both
/// scales.
///
/// The background is transparent. Every colour has a contrast above 4 both to white and
/// to the dark pages of code hosts.
class chart {
 public:
  static constexpr std::array<std::string_view, 4> strips{"a", "b", "c", "control"};
  static constexpr std::size_t control = 3;

  /// Takes a row of rates in MB/s, as of the `length` seconds before `end`.
  void note_rates(double end, double length, const std::array<double, 4>& rates) {
    rows_.push_back({end - length, end, rates});
  }
  /// Marks a moment on the strip of that number.
  void mark(std::size_t strip, mark_kind kind, double at, std::string text) {
    marks_.push_back({strip, kind, at, std::move(text)});
  }

  /// Throws std::runtime_error if the file cannot be written.
  void write(const std::string& file, std::string_view title) const {
    std::ofstream out(file);
    out << drawn(title);
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
  }

 private:
  struct row {
    double begin, end;
    std::array<double, 4> rates;
  };
  struct marked {
    std::size_t strip;
    mark_kind kind;
    double at;
    std::string text;
  };
  static constexpr double width = 760, left = 64, right = 14;
  static constexpr double top = 48, strip_height = 58, strip_gap = 22;
  static constexpr double height = top + 4 * (strip_height + strip_gap) + 14;
  static constexpr std::string_view ink = "#767b82";
  static constexpr std::array<std::string_view, 4> fills{"#3079d6", "#1f8a8a", "#8f63d8",
                                                         "#767b82"};

  [[nodiscard]] double first() const { return rows_.empty() ? 0 : rows_.front().begin; }
  [[nodiscard]] double last() const { return rows_.empty() ? 1 : rows_.back().end; }
  [[nodiscard]] double x_of(double seconds) const {
    return left + (seconds - first()) / (last() - first()) * (width - left - right);
  }
  static double base_of(std::size_t strip) {
    return top + static_cast<double>(strip) * (strip_height + strip_gap) + strip_height;
  }

  /// Returns the top of the vertical scale: the largest rate, rounded up.
  [[nodiscard]] double most() const {
    double largest = 1;
    for (const row& each : rows_)
      largest = std::max(largest, *std::ranges::max_element(each.rates));
    const double decade = std::pow(10, std::floor(std::log10(largest)));
    for (const double times : {1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0}) {
      if (times * decade >= largest) return times * decade;
    }
    return 10 * decade;
  }

  [[nodiscard]] std::string drawn(std::string_view title) const {
    std::string svg = fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' "
        "height='{1}' font-family='sans-serif' font-size='12' fill='{2}' role='img'>\n"
        "<title>{3}</title>\n"
        "<text x='{4}' y='18' font-size='13' font-weight='bold'>{3}</text>\n",
        width, height, ink, title, left);
    for (std::size_t i = 0; i < strips.size(); ++i) svg += drawn_strip(i, most());
    return svg + drawn_seconds() + "</svg>\n";
  }

  [[nodiscard]] std::string drawn_strip(std::size_t strip, double highest) const {
    const double base = base_of(strip);
    // A row is a step: its rate held from its begin to its end.
    std::string path = fmt::format("M{:.1f} {:.1f}", left, base);
    for (const row& each : rows_) {
      path +=
          fmt::format("V{:.1f}H{:.1f}", base - each.rates[strip] / highest * strip_height,
                      x_of(each.end));
    }
    std::string svg = fmt::format(
        "<g id='{0}'>\n<text x='{1}' y='{2}' text-anchor='end' font-weight='bold'>{0}"
        "</text>\n<path d='{3}V{2}Z' fill='{4}' fill-opacity='0.35' stroke='{4}'/>\n"
        "<path d='M{5} {2}H{6}' stroke='{7}'/>\n",
        strips[strip], left - 8, base, path, fills[strip], left, width - right, ink);
    if (strip == 0) {
      svg += fmt::format(
          "<text x='{}' y='{}' text-anchor='end' font-size='10'>{:g} GB/s</text>\n",
          left - 8, base - strip_height + 8, highest / 1000);
    }
    for (const marked& each : marks_) {
      if (each.strip == strip) svg += drawn_mark(each);
    }
    return svg + "</g>\n";
  }

  /// The text of a fault ends at its line, and that of a return begins there: both can be
  /// read when one follows the other at once. Texts of notices stand lower.
  [[nodiscard]] std::string drawn_mark(const marked& what) const {
    constexpr std::array<std::string_view, 3> names{"fault", "notice", "back"};
    constexpr std::array<std::string_view, 3> colours{"#d64541", "#a8741a", "#2a8a3a"};
    const auto kind = static_cast<std::size_t>(what.kind);
    const bool is_fault = what.kind == mark_kind::fault;
    const double x = x_of(what.at), base = base_of(what.strip);
    const double text_at =
        base - strip_height + (what.kind == mark_kind::notice ? 12 : -4);
    return fmt::format(
        "<g class='{}' data-seconds='{:.3f}'><path d='M{:.1f} {}V{}' stroke='{}' "
        "stroke-width='1.5'{}/><text x='{:.1f}' y='{}' fill='{}'{}>{}</text></g>\n",
        names[kind], what.at, x, base - strip_height - 12, base, colours[kind],
        is_fault ? " stroke-dasharray='4 2'" : "", is_fault ? x - 4 : x + 4, text_at,
        colours[kind], is_fault ? " text-anchor='end'" : "", what.text);
  }

  [[nodiscard]] std::string drawn_seconds() const {
    std::string svg;
    const double step = std::max(1.0, std::ceil((last() - first()) / 15));
    for (double at = std::ceil(first()); at <= last(); at += step) {
      svg += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:g} s</text>\n",
                         x_of(at), base_of(3) + 16, at);
    }
    return svg;
  }

  std::vector<row> rows_;
  std::vector<marked> marks_;
};
