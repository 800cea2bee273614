#include "errors.hpp"

#include <cctype>

namespace shunt_torch {

namespace {

std::string nameOf(const std::string& group) {
  return c10::str("group ", group.empty() ? "without a name" : group.c_str());
}

// The library names its call and rank in most texts: those are not said twice.
bool names(const std::string& text, const Where& where) {
  return text.substr(0, text.find(':')).find(c10::str(" on rank ", where.rank)) != std::string::npos;
}

}  // namespace

std::string Where::str() const { return c10::str(collective, " on rank ", rank, " of ", nameOf(*group)); }

std::string Where::label(const std::vector<int>& ranks) const {
  std::string name = nameOf(group->substr(0, group->find(" (ranks ")));  // which every line would repeat
  return ranks.empty() ? name : c10::str("ranks ", c10::Join(", ", ranks), " of ", name);
}

void throwTimeout(const std::string& text) { C10_THROW_ERROR(DistBackendError, "shunt: timeout in " + text); }

std::exception_ptr timeoutError(const std::string& text) {
  try {
    throwTimeout(text);
  } catch (...) {
    return std::current_exception();
  }
}

std::string renumbered(const std::string& text, const std::vector<int>& ranks) {
  static const std::string before = "rank ";
  std::string out;
  size_t from = 0;
  while (!ranks.empty()) {
    size_t digits = text.find(before, from);
    if (digits == std::string::npos) break;
    size_t end = digits += before.size();
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) end++;
    out += text.substr(from, digits - from);
    size_t rank = end - digits == 1 ? static_cast<size_t>(text[digits] - '0') : ranks.size();
    out += rank < ranks.size() ? std::to_string(ranks[rank]) : text.substr(digits, end - digits);
    from = end;
  }
  return out + text.substr(from);
}

std::string advised(std::string text) {
  static const std::pair<std::string, const char*> words[] = {
      {"communicator world is aborted", "the group is aborted"},
      {"shrink or re-create it", "destroy the group and make another"}};
  for (auto& [ours, theirs] : words)
    if (size_t at = text.find(ours); at != std::string::npos) text.replace(at, ours.size(), theirs);
  // Ranks that pass split sizes and ranks that pass none make two different calls.
  if (text.find(" all_to_all_v") != std::string::npos && text.find(" all_to_all,") != std::string::npos)
    text += "; give all_to_all_single its split sizes on all ranks, or on none";
  return text;
}

void throwStatus(shunt_status status, const Where& where, const std::vector<int>& ranks) {
  std::string text = advised(renumbered(api().last_error_(nullptr), ranks));
  if (text.empty()) text = api().status_string_(status);
  text = c10::str(names(text, where) ? nameOf(*where.group) : where.str(), ": ", text);
  if (status == SHUNT_TIMEOUT) throwTimeout(text);
  text = "shunt: " + text;
  switch (status) {
    case SHUNT_INVALID_ARGUMENT:
      TORCH_CHECK_VALUE(false, text);
    case SHUNT_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    default:
      C10_THROW_ERROR(DistBackendError, text);
  }
}

}  // namespace shunt_torch
