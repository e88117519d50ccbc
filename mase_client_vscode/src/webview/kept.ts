/** What each page keeps beside its own, so that its panel can come back when the window is loaded again: whose it is. */
export interface Kept {
  path: string;
  model: string;
}
