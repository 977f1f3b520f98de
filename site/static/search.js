// What a result quotes is the chapter's own text: not the theme's buttons and headings, nor prompts of folded cells.
Search.htmlToText = (page, anchor) => {
  const article = new DOMParser().parseFromString(page, "text/html").querySelector("article.bd-article");
  article?.querySelectorAll(".headerlink, script, style, svg, summary, .cell_input, p.facts, p.hour").forEach(element => element.remove());
  const place = (anchor && article?.querySelector(anchor)) || article;
  return place ? place.textContent.replace(/\s+/g, " ") : "";
};
