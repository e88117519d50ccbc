/** The messages between the form for inputs and the extension. */
import { InputTrial } from 'mase-client/records';
import { Kept } from '../webview/kept';

/** The texts of the fields. `arguments` is missing if the call is found automatically. */
export interface Said {
  inputs: Record<string, string>;
  arguments?: Record<string, string>;
}

/** `sets`: the named ones; `used`: the one that the model is traced with; `set`: the one in the form, '' for unnamed comments. */
export interface Sets extends Kept {
  sets: string[];
  used: string;
  set: string;
}

export type ToPage =
  | ({ type: 'form'; trial: InputTrial } & Sets)
  | { type: 'trial'; number: number; trial: InputTrial }
  | { type: 'written'; saved: boolean }
  | { type: 'notice'; text: string };

export type FromPage =
  | { type: 'select'; set: string }
  | { type: 'try'; number: number; set: string; said: Said }
  | { type: 'apply'; set: string; text: string }
  | { type: 'remove'; set: string }
  | { type: 'compare'; set: string };

/** The state that the page keeps: the model of its form, and texts of one set that are typed but not written. */
export interface KeptForm extends Kept {
  set: string;
  texts: Record<string, string>;
}
