#include "launcher.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace mwbench {

bool ask_launcher(common_options& common) {
  mw::launch_context job = mw::launch_context::from_environment();
  if (job.launcher == mw::launcher_kind::none) return false;
  common.job = std::move(job);
  if (common.job.rank > 0) common.role = std::to_string(common.job.rank);
  return true;
}

void refuse_launcher(const common_options& common, std::string_view question) {
  if (!common.has_launcher()) return;
  throw std::runtime_error(
      fmt::format("{} starts its processes itself: ask it without a launcher, or with "
                  "--no-launcher ({} has started this one)",
                  question, name_of(common.job.launcher)));
}

int members_of(const common_options& common, std::string_view question, int wanted,
               bool was_said) {
  if (!common.has_launcher() || wanted == common.job.size) return wanted;
  if (!was_said) return common.job.size;
  throw std::runtime_error(
      fmt::format("{} is asked of {} processes, the launcher has "
                  "started {}",
                  question, wanted, common.job.size));
}

}  // namespace mwbench
