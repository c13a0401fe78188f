#include "host/page_agreement.hpp"

#include <algorithm>
#include <utility>

#include "host/collectives.hpp"
#include "host/host_backend.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

/// More members than this would map too much: each maps the pages of all.
constexpr rank_t most_page_members = 64;
/// How far ahead of its own next collective a member allows pages: the others' answers
/// come meanwhile, so that no collective waits for them.
constexpr std::uint64_t collectives_ahead = 8;
constexpr std::uint64_t latest_from = std::uint64_t{1} << 47;

}  // namespace

page_agreement::page_agreement(core& shared, const collective_tracker& numbers)
    : core_(shared), numbers_(numbers), members_(static_cast<std::size_t>(shared.size)) {}

void page_agreement::add_link(rank_t peer, std::shared_ptr<shm::shared_link> link,
                              unsigned slot) {
  member& m = members_[static_cast<std::size_t>(peer)];
  m.link = std::move(link);
  m.slot = slot;
}

bool page_agreement::is_possible() const noexcept {
  if (!core_.options.one_host || core_.size < 2 || core_.size > most_page_members) {
    return false;
  }
  rank_t linked = 0;
  for (const member& m : members_) {
    linked += m.link && m.link->pools().passes_descriptors() ? 1 : 0;
  }
  return linked == core_.size - 1;
}

shm::page_header page_agreement::header_of(rank_t rank) const noexcept {
  shm::page_header h;
  h.world_id = core_.options.world_id;
  h.rank = static_cast<std::uint32_t>(rank);
  h.members = static_cast<std::uint32_t>(core_.size);
  return h;
}

void page_agreement::tell(rank_t peer, std::uint32_t what, std::uint64_t id) {
  frame f;
  f.kind = frame_kind::page;
  f.generation = what;
  f.id = id;
  core_.backend.tell(peer, f);
}

void page_agreement::begin() {
  if (stage_ != stage::unused) return;
  if (!is_possible()) return refuse({});
  stage_ = stage::offered;
  std::string why_not;
  pages_.own = shm::own_page::make(header_of(core_.self), why_not);
  if (!pages_.own) return refuse(why_not);
  pages_.others.resize(members_.size());
  for (rank_t peer = 0; peer < core_.size; ++peer) {
    if (peer == core_.self) continue;
    member& m = members_[static_cast<std::size_t>(peer)];
    const std::uint64_t token =
        m.link->pools().pass_page(m.slot, pages_.own->descriptor());
    if (token == 0) return refuse("its descriptor cannot be passed to another member");
    tell(peer, page_passed, token);
    // Telling may have found the end of the world, or an answer.
    if (stage_ != stage::offered || core_.stopping) return;
  }
  pages_.own->forget_file();
}

const char* page_agreement::handle(rank_t peer, const frame& f) {
  member& m = members_[static_cast<std::size_t>(peer)];
  if (f.generation == page_passed) {
    if (!m.link) return "a page where none can be passed";
    if (std::exchange(m.was_mapped, true)) return "a second page";
    begin();
    if (stage_ == stage::offered) return map(peer, f.id);
    // It is taken all the same, or it would stay in its socket (law 6).
    (void)m.link->pools().take_page(m.slot, f.id);
    return nullptr;
  }
  if (m.from != 0) return "a second answer about pages";
  if (f.id > latest_from) return "a page from an impossible number on";
  m.from = f.id;
  has_cpus_ = has_cpus_ && f.generation == page_ready_with_cpus;
  if (f.generation == page_refused) {
    // It tells all, so that none waits for this member's answer.
    give_up();
    return nullptr;
  }
  if (stage_ == stage::unused) return "an answer about pages that were not passed";
  look_at_answers();
  return nullptr;
}

const char* page_agreement::map(rank_t peer, std::uint64_t token) {
  member& m = members_[static_cast<std::size_t>(peer)];
  const unique_descriptor file = m.link->pools().take_page(m.slot, token);
  if (!file) {
    refuse("another member's page did not arrive");
    return nullptr;
  }
  const char* wrong = nullptr;
  std::string why_not;
  auto page = shm::peer_page::map(file, header_of(peer), wrong, why_not);
  if (wrong) return wrong;
  if (!page) {
    refuse(why_not);
    return nullptr;
  }
  pages_.others[static_cast<std::size_t>(peer)] = std::move(page);
  const auto mapped = std::count_if(
      pages_.others.begin(), pages_.others.end(),
      [](const std::unique_ptr<shm::peer_page>& p) { return p != nullptr; });
  if (mapped < core_.size - 1) return nullptr;
  own_from_ = numbers_.next_number() + collectives_ahead;
  has_cpus_ = has_cpus_ && core_.has_cpu_for_each;
  for (rank_t other = 0; other < core_.size; ++other) {
    if (other == core_.self) continue;
    tell(other, core_.has_cpu_for_each ? page_ready_with_cpus : page_ready, own_from_);
  }
  look_at_answers();
  return nullptr;
}

void page_agreement::refuse(const std::string& why_not) {
  MW_ASSERT(own_from_ == 0 && !is_decided(), "a member answers once");
  give_up();
  if (!why_not.empty()) {
    // A runtime may have a thousand worlds, which all meet the same refusal.
    bool is_news = false;
    for (const member& m : members_) {
      if (m.link && m.link->tell_of_refused_page()) is_news = true;
    }
    core_.events.log(is_news ? log_level::warning : log_level::debug,
                     "small collectives of this world go by messages, not through pages "
                     "that all members map: " +
                         why_not);
  }
  for (rank_t peer = 0; peer < core_.size; ++peer) {
    if (peer != core_.self && members_[static_cast<std::size_t>(peer)].link) {
      tell(peer, page_refused, 1);
    }
  }
}

void page_agreement::give_up() noexcept {
  stage_ = stage::refused;
  own_from_ = 0;
  pages_ = {};
}

void page_agreement::look_at_answers() {
  if (stage_ != stage::offered || own_from_ == 0) return;
  std::uint64_t latest = own_from_;
  for (rank_t peer = 0; peer < core_.size; ++peer) {
    if (peer == core_.self) continue;
    const std::uint64_t from = members_[static_cast<std::size_t>(peer)].from;
    if (from == 0) return;
    latest = std::max(latest, from);
  }
  from_ = latest;
  stage_ = stage::agreed;
  core_.events.log(log_level::debug,
                   "small collectives of this world go through pages from number " +
                       std::to_string(from_) + " on");
}

void page_agreement::peer_left(rank_t peer) {
  if (is_decided() || stage_ == stage::unused) return;
  if (members_[static_cast<std::size_t>(peer)].from == 0) give_up();
}

}  // namespace manyworlds::inline v0::detail::host
