/** What the page of the cost table and the extension tell each other. */
import { Kept } from '../webview/kept';
import { CostTable } from './rows';
import { View } from './tree';

export type ToPage =
  /** The table to show; `problem`: why there is no newer one. */
  | { type: 'table'; table: CostTable; problem?: string }
  /** There is no table, and why. */
  | { type: 'nothing'; problem: string }
  /** The rows that the editor's cursor is on. */
  | { type: 'cursor'; ids: string[] }
  /** A row that a person asked for by a link: it is brought into sight. */
  | { type: 'select'; id: string };

export type FromPage =
  | { type: 'goto'; id: string; focus: boolean }
  | { type: 'copy'; text: string; rows: number }
  | { type: 'save'; text: string }
  | { type: 'graph' };

/** What the page remembers of itself. */
export interface State extends Omit<View, 'open'>, Kept {
  open: string[] | null;
  selected: string;
  scroll: number;
}
