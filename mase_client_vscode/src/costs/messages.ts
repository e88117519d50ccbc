/** The messages between the page of the cost table and the extension. */
import { CostTable } from 'mase-client/records';
import { Kept } from '../webview/kept';
import { View } from './tree';

export type ToPage =
  /** The table to show; `problem`: why there is no newer one. */
  | { type: 'table'; table: CostTable; problem?: string }
  /** There is no table, and why. */
  | { type: 'nothing'; problem: string }
  /** The rows under the editor's cursor. */
  | { type: 'cursor'; ids: string[] }
  /** A row requested by a link: the page scrolls to it. */
  | { type: 'select'; id: string };

export type FromPage =
  | { type: 'goto'; id: string; focus: boolean }
  | { type: 'copy'; text: string; rows: number }
  | { type: 'save'; text: string }
  | { type: 'graph' }
  /** Show a line of the model's code. */
  | { type: 'line'; file: string; line: number; focus: boolean }
  /** Pick a device. */
  | { type: 'device' }
  /** Compare the run with another one. */
  | { type: 'compare' };

/** The state that the page stores. */
export interface State extends Omit<View, 'open'>, Kept {
  open: string[] | null;
  selected: string;
  scroll: number;
}
