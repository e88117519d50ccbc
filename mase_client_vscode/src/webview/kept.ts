/** Stored by each page besides its own state: its model, so that its panel can be restored when the window is reloaded. */
export interface Kept {
  path: string;
  model: string;
}
